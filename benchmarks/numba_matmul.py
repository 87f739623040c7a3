"""numba's @njit of a matrix product; compile_latency.py runs it where numba is installed."""

from __future__ import annotations

import json
import time

start = time.perf_counter()
import numba  # noqa: E402

imported = 1e3 * (time.perf_counter() - start)

SIGNATURE = "void(float32[:, ::1], float32[:, ::1], float32[:, ::1])"


def matmul(a, b, c):
    for i in range(a.shape[0]):
        for k in range(a.shape[1]):
            for j in range(b.shape[1]):
                c[i, j] += a[i, k] * b[k, j]


def scale(a, b, c):
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            c[i, j] = a[i, j] * b[i, j]


def compile_ms(function) -> float:
    start = time.perf_counter()
    numba.njit(function).compile(SIGNATURE)
    return 1e3 * (time.perf_counter() - start)


if __name__ == "__main__":
    first = compile_ms(matmul)
    compile_ms(scale)
    matmul_again = type(matmul)(matmul.__code__.replace(co_name="again"), globals())
    print(
        json.dumps(
            {
                "version": numba.__version__,
                "numba: import": imported,
                "numba: compile, first in the process": first,
                "numba: compile, another function compiled before": compile_ms(matmul_again),
            }
        )
    )
