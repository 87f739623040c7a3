"""HIP C++ as a dialect of the C-like core: its words, types and functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.emit.c_like.dialect import Dialect, Function, shown
from tileworkbench.compiler.emit.c_like.helpers import Helper
from tileworkbench.compiler.emit.c_like.program import Module, generate
from tileworkbench.compiler.emit.c_like.statements import GRID_BARRIER, KernelWriter
from tileworkbench.compiler.emit.hip.asynchronous import (
    FIRST,
    copy_in_line,
    least_copies,
    wait_helper,
    with_first,
)
from tileworkbench.compiler.emit.hip.atomics import atomic, float_update, narrow_update
from tileworkbench.compiler.emit.hip.declarations import (
    BIT_CASTS,
    DECLARATIONS,
    FUNCTIONS,
    MATH,
    VECTORS,
    has_double,
    with_declarations,
)
from tileworkbench.compiler.emit.hip.exchanges import exchange
from tileworkbench.compiler.emit.hip.helpers import HELPERS
from tileworkbench.compiler.emit.hip.matrices import mfma_helper
from tileworkbench.compiler.emit.hip.tensors import tensor_read
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import simt
from tileworkbench.compiler.ir.expr import Load
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.stmt import AtomicKind, SourceKernel, Stmt
from tileworkbench.compiler.ir.types import DType
from tileworkbench.compiler.machine.machine import Machine
from tileworkbench.compiler.target import Target

_THREAD = "__builtin_amdgcn_workitem_id_x()"
# Functions that are not of float64 without ROCm's device library.
_FLOAT32 = {*MATH, *(name.removesuffix("_f32") for name in FUNCTIONS), "sigmoid"}


def generate_hip(program: Program, target: Target, source: tuple[str, ...] = ()) -> Module:
    """The module of `program`; `source` are the lines of the file that its sites point into.

    Raises `UnsupportedError` for what the target or this back end cannot express.
    """
    made = generate(program, Hip(target.machine), source)
    return replace(made, text=with_declarations(made.text))


@dataclass(frozen=True)
class Hip(Dialect):
    """HIP C++ for one architecture."""

    machine: Machine

    language = "HIP"
    restrict = "__restrict__"
    thread_index = _THREAD
    block_indices = (
        "__builtin_amdgcn_workgroup_id_x()",
        "__builtin_amdgcn_workgroup_id_y()",
        "__builtin_amdgcn_workgroup_id_z()",
    )
    trap = "__builtin_trap();"
    bit_casts = BIT_CASTS
    helpers = HELPERS
    picks: ClassVar[Mapping[int, str]] = {16: "pick16", 8: "pick8"}
    small_half = "small_f16"
    math = {**MATH, "rsqrt": "rsqrt"}
    words = frozenset(
        {*DECLARATIONS, FIRST, "threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize"}
    )
    pattern = r"(mfma|atomic|warp|source)_\w+|[fiu](16|32|64)[xr]\d+|bf16r8"

    @property
    def platform(self) -> str:
        return self.machine.name

    def pair(self, dtype: DType) -> str | None:
        return "f16_pair" if str(dtype) == "float16" else None

    def check(self, helper: Helper) -> None:
        """Every helper is there on every machine."""

    def kernel(self, function: Function) -> str:
        params = ", ".join(f"{c_type} {name}" for c_type, name in function.params)
        size = f"amdgpu_flat_work_group_size({function.threads}, {function.threads})"
        lines = [
            f'extern "C" __global__ __attribute__(({size})) void',
            f"{function.entry}({params})",
            "{",
        ]
        if function.shared_bytes is not None:
            bytes_ = max(function.shared_bytes, 1)
            aligned = "__attribute__((aligned(1024)))"
            lines.append(f"  __shared__ {aligned} unsigned char shared_memory[{bytes_}];")
        return "\n".join([*lines, *with_first(function.lines, self.thread_index), "}"])

    def source_kernel(self, kernel: SourceKernel) -> str:
        raise UnsupportedError(
            f"CUDA source is no code for '{self.machine.name}'",
            hint="write the kernel with T, which compiles for both",
        )

    def table(self, c_type: str, name: str, entries: str) -> str:
        return f"__constant__ const {c_type} {name}[16] = {{{entries}}};"

    def unroll(self, whole: bool) -> str:
        return "#pragma unroll" if whole else "#pragma unroll 1"

    def assume(self, condition: str) -> str:
        return f"__builtin_assume({condition});"

    def vector_type(self, c_type: str, count: int) -> str:
        return f"{VECTORS[c_type]}x{count}"

    def vector(self, c_type: str, parts: list[str]) -> str:
        return f"({self.vector_type(c_type, len(parts))}){{{', '.join(parts)}}}"

    def intrinsic(self, name: str, args: list[str], dtype: DType) -> str | None:
        if name == "popcount":
            return f"__builtin_popcount{'ll' if dtype.bits == 64 else ''}({', '.join(args)})"
        if dtype.bits == 64 and name in _FLOAT32 and not has_double(name):
            raise UnsupportedError(
                f"'T.{name}' of '{dtype}' is not there on HIP without ROCm's device library",
                hint="convert the value to 'float32' first",
            )
        own = f"{name}_f{dtype.bits}"
        return f"{own}({', '.join(args)})" if own in FUNCTIONS else None

    def atomic(
        self, kind: AtomicKind, dtype: DType, place: str, value: str, writer: KernelWriter
    ) -> str:
        use, c_type = writer.expressions.use, writer.expressions.c_type(dtype)
        if dtype.bits < 32:
            made = narrow_update(kind.value, c_type, dtype.bits, writer.combined(kind, dtype))
            return f"{use(*made)}({place}, {value})"
        if dtype.is_float and kind.value in ("max", "min"):
            made = float_update(kind.value, c_type, writer.combined(kind, dtype))
            return f"{use(*made)}({place}, {value})"
        return atomic(kind.value, place, value)

    def vector_addition(self, dtype: DType, lanes: int, scope: str) -> tuple[str, Helper]:
        raise self.missing(f"an atomic addition to {lanes} neighbours")

    def statement(self, stmt: Stmt, writer: KernelWriter) -> list[str]:
        use = writer.expressions.use
        match stmt:
            case simt.Exchange():
                return exchange(stmt, writer.expressions)
            case simt.Barrier(0, 0, True):
                return [f"{use('sync_block')}();"]
            case simt.Barrier():
                raise UnsupportedError(
                    f"'{self.machine.name}' has no barrier for some threads of a block",
                    hint="let all threads of the block wait, with T.sync_threads()",
                )
            case simt.WarpBarrier():
                return [f"{use('sync_wave')}();"]
            case simt.GridBarrier():
                return [f"{use('sync_grid')}({GRID_BARRIER.name});"]
            case simt.Fence("block" | "grid" as kind):
                return [f"{use(f'fence_{kind}')}();"]
            case simt.Mma():
                return [self.product(stmt, writer)]
            case simt.LoadTurned(dst, src):
                pointers = writer.register_words(dst), writer.expressions.address(src)
                return [f"{use(f'read_turned_{src.buffer.dtype.bits}')}({', '.join(pointers)});"]
            case simt.AsyncCopy(in_line=True):
                return [copy_in_line(stmt, writer)]
            case simt.CommitGroup(simt.Engine.CP_ASYNC):
                return []  # the machine counts instructions
            case simt.WaitGroup(pending, simt.Engine.CP_ASYNC):
                name, helper = wait_helper(pending * least_copies(writer.program, stmt))
                return [f"{use(name, helper)}();"]
        raise self.missing(shown(stmt))

    def read(self, load: Load, kind: tuple[str, int], writer: KernelWriter) -> str | None:
        return tensor_read(load, kind, writer)

    def product(self, stmt: simt.Mma, writer: KernelWriter) -> str:
        """A call of MFMA."""
        row = self.machine.matrix(stmt.shape, stmt.dtypes)
        if row is None:
            raise self.missing(shown(stmt))
        name, helper = mfma_helper(row)
        writer.expressions.use(name, helper)
        words = [writer.register_words(address) for address in (stmt.a, stmt.b)]
        return f"{name}({writer.expressions.address(stmt.c)}, {', '.join(words)});"
