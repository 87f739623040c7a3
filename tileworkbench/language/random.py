"""Random numbers, from the generator Philox4x32-10 of Salmon et al., "Parallel random numbers: as
easy as 1, 2, 3" (SC 2011), with the counters and conversions of CUDA's random number library.
"""

from __future__ import annotations

from typing import Any

from tileworkbench.compiler.diagnostics import TileValueError, UnsupportedError
from tileworkbench.compiler.frontend import random
from tileworkbench.compiler.frontend.builder import in_kernel
from tileworkbench.compiler.frontend.values import Value, describe
from tileworkbench.compiler.ir import build
from tileworkbench.compiler.ir.expr import Expr
from tileworkbench.language import math

_GENERATORS = ("curandStatePhilox4_32_10_t", "curandStateMRG32k3a_t", "curandStateXORWOW_t")


def rng_init(seed: Any, seq: Any = None, off: Any = 0, generator: str = _GENERATORS[0]) -> None:
    """Start the generator of each thread: key `seed`, sequence `seq`, its first `off` numbers
    skipped; all are 64-bit integers.

    Without `seq` a block takes the sequence of its first thread in the launch, `bx * threads`.
    Raises `TileValueError` for a generator that does not exist.

    >>> T.rng_init(42)
    >>> for i in T.Parallel(64):
    ...     word[i] = T.rng_rand()
    """
    builder = in_kernel("T.rng_init")
    if generator not in _GENERATORS:
        raise TileValueError(
            f"{generator!r} is not a generator of T.rng_init", hint=f"use '{_GENERATORS[0]}'"
        )
    if generator != _GENERATORS[0]:
        raise UnsupportedError(
            f"the generator '{generator}' is not supported", hint=f"use '{_GENERATORS[0]}'"
        )
    if seq is None:
        threads: Expr = build.int_const(1)
        for extent in builder.threads:
            threads = build.mul(threads, build.int_const(extent))
        seq = Value(build.mul(builder.blocks[0], threads))
    random.start(seed, seq, off)


def rng_rand() -> Value:
    """The next random number: a `uint32`.

    In T.Parallel each iteration gets numbers of its own, in row-major order. Raises
    `TileRuntimeError` before `T.rng_init`.

    >>> T.rng_init(42)
    >>> for i in T.Parallel(64):
    ...     word[i] = T.rng_rand()
    """
    return random.draw("T.rng_rand")[0]


def rng_rand_float(bit: int = 32, dist: str = "uniform") -> Value:
    """A random `float32` or `float64`: uniform in (0, 1], or of the standard normal distribution.

    A uniform `float64` and every normal number take two numbers of the sequence; of the pair that
    the Box-Muller transform makes from them the first is used. Raises `TileValueError` for other
    sizes and distributions.

    >>> T.rng_init(42)
    >>> for i in T.Parallel(64):
    ...     row[i] = T.rng_rand_float(dist="normal")
    """
    if bit not in (32, 64) or isinstance(bit, bool):
        raise TileValueError(f"'bit' of T.rng_rand_float must be 32 or 64, not {describe(bit)}")
    if dist not in ("uniform", "normal"):
        raise TileValueError(
            f"{dist!r} is not a distribution of T.rng_rand_float",
            hint="use 'uniform' or 'normal'",
        )
    if dist == "normal":
        return _normal(bit)
    if bit == 64:
        return _uniform64(*random.draw("T.rng_rand_float", 2))
    return _uniform32(random.draw("T.rng_rand_float")[0])


def _uniform32(word: Value, scale: float = 1.0) -> Value:
    """`(word + 1/2) / 2 ** 32 * scale`, rounded as a sum of two products."""
    step = Value(build.const(2.0**-32 * scale, "float32"))
    half = Value(build.const(2.0**-33 * scale, "float32"))
    made: Value = math.fma(word.astype("float32"), step, half)
    return made


def _uniform64(low: Value, high: Value) -> Value:
    """53 bits of two words, of which the high one is shifted by 21."""
    bits = low.astype("uint64") ^ (high.astype("uint64") << 21)
    step = Value(build.const(2.0**-53, "float64"))
    made: Value = math.fma(bits.astype("float64"), step, Value(build.const(2.0**-54, "float64")))
    return made


def _normal(bit: int) -> Value:
    """sqrt(-2 log u) sin(2 pi v) of two uniform numbers: Box and Muller (1958)."""
    if bit == 32:
        first, second = random.draw("T.rng_rand_float", 2)
        u, angle = _uniform32(first), _uniform32(second, 6.2831855)
    else:
        words = random.draw("T.rng_rand_float", 4)
        u = _uniform64(*words[:2])
        angle = _uniform64(*words[2:]) * Value(build.const(6.283185307179586, "float64"))
    size: Value = math.sqrt(math.log(u) * -2)
    product: Value = size * math.sin(angle)
    return product
