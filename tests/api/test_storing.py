"""Kernels that are stored and loaded: by pickle, by copy, in another process."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import copy
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.compat.kernels import JITKernel

n = T.dynamic("n")


@T.prim_func
def plus(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
    with T.Kernel(T.ceildiv(n, 128), threads=32) as bx:
        for i in T.Parallel(128):
            B[bx * 128 + i] = A[bx * 128 + i] + 1.0


@pytest.mark.parametrize("target", ["cpu", "sim:sm_80"])
def test_a_stored_kernel_is_compiled_again(target: str) -> None:
    kernel = tw.compile(plus, out_idx=[1], target=target)
    kernel.config = {"block": 128}
    if target == "cpu":  # a simulator has no times
        kernel.bench(np.ones(8, np.float32), rounds=1)
    assert kernel.grid  # cached, and not stored
    for again in (pickle.loads(pickle.dumps(kernel)), copy.deepcopy(kernel), copy.copy(kernel)):
        assert (again.program, again.target, again.source) == (
            *(kernel.program, kernel.target, kernel.source),
        )
        assert again.config == {"block": 128} and again.view().bench == kernel.view().bench
        assert again(np.ones(130, np.float32)).tolist() == [2.0] * 130


def test_options_and_kinds_are_kept() -> None:
    kernel = tw.compile(plus, allow_alias=True)
    x = np.ones(9, np.float32)
    pickle.loads(pickle.dumps(kernel))(x[1:], x[:-1])
    assert x.tolist() == [2.0] * 8 + [1.0]
    held = pickle.loads(pickle.dumps(JITKernel(plus, out_idx=[1])))
    assert type(held) is JITKernel and held.out_idx == [1]


def test_another_process_loads_it(tmp_path: Path) -> None:
    path = tmp_path / "kernel"
    path.write_bytes(pickle.dumps(tw.compile(plus, out_idx=[1])))
    script = f"import pickle, numpy; k = pickle.load(open({str(path)!r}, 'rb')); "
    script += "print(k(numpy.ones(3, 'f')).tolist())"
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120
    )
    assert found.stdout == "[2.0, 2.0, 2.0]\n"


def test_a_variant_is_stored_with_its_kernel() -> None:
    (variant, *_) = tw.compile(plus, out_idx=[1], target="sim:sm_80").variants
    with pytest.raises(tw.ArgumentError) as caught:
        pickle.dumps(variant)
    assert caught.value.render() == (
        "ArgumentError: a variant of 'plus' is part of its kernel and cannot be stored\n"
        "hint: store the kernel, whose 'variants' has it"
    )
