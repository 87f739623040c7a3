"""CUDA C++ as a dialect of the C-like core: its words, types and functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import ClassVar

from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.emit.c_like.dialect import Dialect, Function, shown
from tileworkbench.compiler.emit.c_like.helpers import Helper
from tileworkbench.compiler.emit.c_like.program import Module, generate
from tileworkbench.compiler.emit.c_like.statements import KernelWriter
from tileworkbench.compiler.emit.c_like.text import HALVES, wrapped
from tileworkbench.compiler.emit.cuda.atomics import half_addition, narrow_update, vector_addition
from tileworkbench.compiler.emit.cuda.clusters import peers
from tileworkbench.compiler.emit.cuda.elections import elections
from tileworkbench.compiler.emit.cuda.features import require
from tileworkbench.compiler.emit.cuda.helpers import BIT_CASTS, HELPERS
from tileworkbench.compiler.emit.cuda.statements import write
from tileworkbench.compiler.emit.cuda.tensors import copies_of_boxes
from tileworkbench.compiler.emit.cuda.wgmma import write_products
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.simt import Engine, Start
from tileworkbench.compiler.ir.stmt import AtomicKind, Kernel, SourceKernel, Stmt
from tileworkbench.compiler.ir.types import DType
from tileworkbench.compiler.machine.machine import Machine
from tileworkbench.compiler.target import Target

# How names of vectors of these types begin.
_VECTORS = {
    **{"unsigned": "uint", "long long": "longlong", "unsigned long long": "ulonglong"},
    **{c_type: c_type for c_type in ("float", "int", "double")},
}


def generate_cuda(program: Program, target: Target, source: tuple[str, ...] = ()) -> Module:
    """The module of `program`; `source` are the lines of the file that its sites point into.

    Raises `UnsupportedError` for what the target or this back end cannot express.
    """
    if target.kind != "cuda":
        raise UnsupportedError(f"target '{target}' is not a CUDA target")
    return generate(program, Cuda(target.machine, peers(program)), source)


@dataclass(frozen=True)
class Cuda(Dialect):
    """CUDA C++ for one architecture. `peers` are a program's names for memory of other blocks of a
    cluster, each with the memory of the block that corresponds to it.
    """

    machine: Machine
    peers: Mapping[Buffer, Buffer] = field(default_factory=dict, hash=False)

    language = "CUDA"
    restrict = "__restrict__"
    thread_index = "threadIdx.x"
    block_indices = ("blockIdx.x", "blockIdx.y", "blockIdx.z")
    warp = (32, "__shfl_sync(0xffffffffu, (int)threadIdx.x / 32, 0)")
    leader = "elected"
    trap = "__trap();"
    bit_casts = BIT_CASTS
    helpers = HELPERS
    picks: ClassVar[Mapping[int, str]] = {8: "pick8"}
    math = {"rsqrt": "rsqrt", "exp10": "exp10"}
    words = frozenset({"threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize"})
    pattern = (
        r"(mma|cp_async|tensor|atomic|(global|shared)_add|lanes|make)_\w+|atomic[A-Z]\w*"
        r"|(u?(char|short|int|long|longlong)|float|double)[1-4]"
    )

    @property
    def platform(self) -> str:
        return self.machine.name

    def check(self, helper: Helper) -> None:
        if helper.feature:
            require(helper.feature, self.machine)

    def elections(self, kernel: Kernel) -> Mapping[int, int]:
        return elections(kernel)

    def tensor_map(self, writer: KernelWriter) -> str:
        return f"const __grid_constant__ {writer.expressions.use('TensorMap')}"

    def kernel(self, function: Function) -> str:
        params = ", ".join(f"{c_type} {name}" for c_type, name in function.params)
        # With one block in mind compilers know how many registers a thread begins with.
        only = ", 1" if any("_registers_" in line for line in function.lines) else ""
        lines = [
            f'extern "C" __global__ void __launch_bounds__({function.threads}{only})',
            f"{function.entry}({params})",
            "{",
        ]
        if function.shared_bytes is not None:
            lines.append("  extern __shared__ __align__(1024) unsigned char shared_memory[];")
        return "\n".join([*lines, *function.lines, "}"])

    def source_kernel(self, kernel: SourceKernel) -> str:
        if any(extent != 1 for extent in kernel.threads[1:]):
            raise UnsupportedError(
                "blocks of CUDA source have threads along x only",
                hint="compute y and z from threadIdx.x",
            )
        if 'extern "C"' in kernel.source:
            return kernel.source
        return kernel.source.replace("__global__", 'extern "C" __global__')

    def table(self, c_type: str, name: str, entries: str) -> str:
        return f"__device__ __constant__ {c_type} {name}[16] = {{{entries}}};"

    def unroll(self, whole: bool) -> str:
        return "#pragma unroll" if whole else "#pragma unroll 1"

    def assume(self, condition: str) -> str:
        return f"__builtin_assume({condition});"

    def vector_type(self, c_type: str, count: int) -> str:
        return f"{_VECTORS[c_type]}{count}"

    def vector(self, c_type: str, parts: list[str]) -> str:
        return f"make_{self.vector_type(c_type, len(parts))}({', '.join(parts)})"

    def pair(self, dtype: DType) -> str | None:
        return f"{HALVES[str(dtype)]}_pair" if str(dtype) in self.machine.pairs else None

    def intrinsic(self, name: str, args: list[str], dtype: DType) -> str | None:
        long = "ll" if dtype.bits == 64 else ""
        called = {"popcount": f"__popc{long}", "dp4a": "__dp4a"}.get(name)
        return called and f"{called}({', '.join(args)})"

    def atomic(
        self, kind: AtomicKind, dtype: DType, place: str, value: str, writer: KernelWriter
    ) -> str:
        use, c_type = writer.expressions.use, writer.expressions.c_type(dtype)
        half = HALVES.get(str(dtype)) if ("global", str(dtype)) in self.machine.atomics else None
        if half and kind is AtomicKind.ADD:
            return f"{use(*half_addition(half))}({place}, {value})"
        if dtype in ("float32", "float64") and kind.value in ("max", "min"):
            return f"{use(f'atomic_{kind}_f{dtype.bits}')}({place}, {value})"
        if dtype.bits < 32:
            made = narrow_update(kind.value, c_type, dtype.bits, writer.combined(kind, dtype))
            return f"{use(*made)}({place}, {value})"
        name = f"atomic{kind.capitalize()}"
        if dtype == "int64" and kind.value not in ("max", "min"):
            pointer = f"(unsigned long long*)({place})"
            return f"(long long){name}({pointer}, (unsigned long long){wrapped(value)})"
        return f"{name}({place}, {value})"

    def vector_addition(self, dtype: DType, lanes: int, scope: str) -> tuple[str, Helper]:
        return vector_addition(HALVES.get(str(dtype), "f32"), lanes, scope)

    def start(self, stmt: Start, writer: KernelWriter, depth: int) -> None:
        match stmt.engine:
            case Engine.WGMMA:
                write_products(stmt, writer, depth)
            case Engine.TMA | Engine.TMA_STORE:
                for text in copies_of_boxes(stmt, writer):
                    writer.line(depth, text)
            case _:
                raise self.missing(shown(stmt))

    def statement(self, stmt: Stmt, writer: KernelWriter) -> list[str]:
        return write(stmt, writer, self)
