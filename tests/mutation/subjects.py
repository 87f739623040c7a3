"""The kernels that mistakes are made in, and how to tell that one was caught."""

# Annotations are evaluated where kernels are defined: no `from __future__ import annotations`.

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import tileworkbench.kernels as kernels
import tileworkbench.language as T
from tileworkbench.compiler.analysis.dataflow import effects_of
from tileworkbench.compiler.device.nvidia.nvrtc import compile_cuda
from tileworkbench.compiler.device.tensor_maps import map_values
from tileworkbench.compiler.diagnostics import RunError, TileError
from tileworkbench.compiler.driver import lower_program
from tileworkbench.compiler.emit.cuda.dialect import generate_cuda
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.simt import TensorMap
from tileworkbench.compiler.sim import SimOptions, simulate
from tileworkbench.compiler.sim.ptx.launch import PtxProgram
from tileworkbench.compiler.sim.ptx.tensormap import TensorMap as PtxTensorMap
from tileworkbench.compiler.target import parse_target

Array = np.ndarray[Any, Any]
MOST_INSTRUCTIONS = 12_000  # that threads in step execute; no subject has a third of them


def half(*shape: int, seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float16)


@dataclass(frozen=True, slots=True)
class Subject:
    """A lowered kernel with arguments by name."""

    origin: Program
    threads: Program  # after barriers, before addresses
    final: Program
    arguments: dict[str, Array]
    arch: str

    @property
    def outputs(self) -> list[str]:
        written = effects_of(self.origin.body).writes
        return [param.name for param in self.origin.params if param.value in written]


def subject(page: Any, arguments: dict[str, Array], arch: str = "sm_80") -> Subject:
    origin = page.program
    snapshots = lower_program(origin, parse_target(f"sim:{arch}"))
    threads = next(found.program for found in snapshots if found.name == "insert_barriers")
    return Subject(origin, threads, snapshots[-1].program, arguments, arch)


@cache
def matmul() -> Subject:
    # Ragged in every extent, three stages, four k steps.
    page = kernels.matmul(
        40, 56, 52 * 2, "float16", out_dtype="float32", block_M=32, block_N=64, num_stages=3
    )
    return subject(page, {"A": half(40, 104, seed=1), "B": half(104, 56, seed=2)})


@cache
def staged() -> Subject:
    """A result of 16 bits leaves through a tile that lies where the operands lay."""
    page = kernels.matmul(
        40, 56, 104, "float16", out_dtype="float16", block_M=32, block_N=64, num_stages=3
    )
    return subject(page, {"A": half(40, 104, seed=1), "B": half(104, 56, seed=2)})


@cache
def attention() -> Subject:
    page = kernels.flash_attention(1, 1, 70, 140, 64, "float16", causal=True)
    names = zip("QKV", (70, 140, 140), strict=True)
    return subject(page, {name: half(1, n, 1, 64, seed=n) for name, n in names})


@T.prim_func
def _additions(
    A: T.Tensor((40, 60), "float16"),
    C: T.Tensor((40, 60), "float32"),
    D: T.Tensor((60,), "float16"),
):
    with T.Kernel(2, threads=64) as bx:
        F = T.alloc_fragment((32, 64), "float16")
        S = T.alloc_shared((64,), "float16")
        T.copy(A[bx * 32, 0], F)
        T.clear(S)
        T.atomic_add(C[bx * 32, 0], F)
        for i, j in T.Parallel(32, 64):
            T.atomic_add(S[j], F[i, j])
        for j in T.Parallel(30):
            T.atomic_addx2(D[j * 2], S[j * 2])


@cache
def additions() -> Subject:
    """Vectors of atomic additions to tiles at a ragged edge, shared memory and a row."""
    arguments = {"A": half(40, 60, seed=3), "C": half(40, 60, seed=4).astype(np.float32)}
    return subject(_additions, {**arguments, "D": half(60, seed=5)}, "sm_90")


@cache
def hopper_matmul() -> Subject:
    """TMA by a producer in a ring of three stages, used twice each, products of a warpgroup, and
    a result that leaves where the operands lay; a ragged edge.
    """
    page = kernels.matmul(
        72, 72, 6 * 32, "float16", out_dtype="float16", block_M=64, block_N=64, block_K=32,
        num_stages=3,
    )  # fmt: skip
    return subject(page, {"A": half(72, 192, seed=1), "B": half(192, 72, seed=2)}, "sm_90a")


@cache
def hopper_attention() -> Subject:
    """Two warpgroups in turn, a producer, five tiles of keys in two versions."""
    page = kernels.flash_attention(
        1, 1, 100, 280, 64, "float16", causal=True, block_M=128, threads=256
    )
    names = zip("QKV", (100, 280, 280), strict=True)
    arguments = {name: half(1, n, 1, 64, seed=n) for name, n in names}
    return subject(page, arguments, "sm_90a")


SUBJECTS: dict[str, Callable[[], Subject]] = {
    "matmul": matmul,
    "staged": staged,
    "attention": attention,
    "additions": additions,
    "hopper matmul": hopper_matmul,
    "hopper attention": hopper_attention,
}


@cache
def expected(name: str) -> dict[str, Array]:
    found = SUBJECTS[name]()
    return simulate(found.final, found.arguments, signature=found.origin).arrays


def simulated(name: str, program: Program) -> str | None:
    """How the simulator sees that `program` is wrong, None when it does not."""
    found = SUBJECTS[name]()
    try:
        options = SimOptions(fences=True)
        result = simulate(program, found.arguments, options=options, signature=found.origin)
    except TileError as error:
        return type(error).__name__
    if not result.report.ok:
        return "finding"
    return _difference(name, result.arrays)


def _difference(name: str, arrays: dict[str, Array]) -> str | None:
    exact = expected(name)
    for output in SUBJECTS[name]().outputs:
        found, right = (np.asarray(values[output], np.float64) for values in (arrays, exact))
        same = np.isclose(found, right, rtol=1e-3, atol=1e-3) | (np.isnan(found) & np.isnan(right))
        if not same.all():
            return "result"
    return None


@cache
def ptx(name: str) -> tuple[str, Any]:
    """The PTX of a subject and how it is launched."""
    found = SUBJECTS[name]()
    module = generate_cuda(found.final, parse_target(f"cuda:{found.arch}"))
    return compile_cuda(module.text, found.arch).ptx, module


def executed(name: str, text: str, limit: int = MOST_INSTRUCTIONS) -> str | None:
    """How executing `text` shows that it is wrong, None when it does not. What does not end is
    stopped behind `limit` instructions.
    """
    found, (_, module) = SUBJECTS[name](), ptx(name)
    arrays: dict[str, Array] = {}
    for param in found.origin.params:
        buffer = param.value
        shape = tuple(int(extent.value) for extent in buffer.shape)
        arrays[param.name] = (
            np.full(shape, np.nan, str(buffer.dtype))
            if param.output
            else found.arguments[param.name].copy()
        )
    values = [
        tensor_map(each, arrays[each.source.name])
        if isinstance(each, TensorMap)
        else arrays[each.name]
        for each in module.arguments
    ]
    try:
        program = PtxProgram.parse(text)
        for launch in module.launches:
            grid = (*(int(extent.value) for extent in launch.grid), 1, 1)[:3]
            block, shared = (launch.threads, 1, 1), launch.shared_bytes
            program.launch(launch.entry, grid, block, values, shared, instruction_limit=limit)
    except (RunError, TileError) as error:
        return type(error).__name__
    return _difference(name, arrays)


def tensor_map(declared: TensorMap, array: Array) -> PtxTensorMap:
    """What the engine knows of a tensor."""
    made = map_values(declared, {}, array.ctypes.data)
    swizzle = f"{made.swizzle}B" if made.swizzle else "none"
    return PtxTensorMap(array, made.box[::-1], swizzle, made.shape, made.strides, made.itemsize)
