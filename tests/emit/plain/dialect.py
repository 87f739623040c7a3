"""Plain C++ as a dialect of the C-like core: `threads.h` says what threads do together.

There is no file of the core that knows of it. What it has nothing for is refused at its line:
asynchronous copies, matrix instructions, memory barriers, clusters.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tileworkbench.compiler.emit.c_like.dialect import Dialect, Function, shown
from tileworkbench.compiler.emit.c_like.helpers import Helper, common_helpers
from tileworkbench.compiler.emit.c_like.program import Module, generate
from tileworkbench.compiler.emit.c_like.statements import KernelWriter
from tileworkbench.compiler.emit.c_like.text import C_TYPES, CODES, wrapped
from tileworkbench.compiler.ir import simt
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.stmt import AtomicKind, SourceKernel, Stmt
from tileworkbench.compiler.ir.types import DType

_BIT_CASTS = {
    (source, target): f"block::cast<{C_TYPES[target]}>"
    for bits in (32, 64)
    for integer in (f"int{bits}", f"uint{bits}")
    for source, target in ((integer, f"float{bits}"), (f"float{bits}", integer))
}
_COMBINED = {"and": "x & y", "or": "x | y", "xor": "x ^ y", "sum": "x + y"} | {
    kind: f"{function}(x, y)"
    for kind, function in (("max", "block::larger"), ("min", "block::smaller"))
}
_BLOCK = {"count": "{}", "all": "{} == (int)block::fibers.size()", "any": "{} != 0"}


def generate_cpp(program: Program, source: tuple[str, ...] = ()) -> Module:
    """The module of `program`, which was lowered for the threads of a GPU.

    Each launch is a function of the extents of its grid, as an array of three ints, and the
    module's arguments. It returns 0, 1 for threads that wait for each other, or 2 where an
    assertion failed. Raises `UnsupportedError` for what plain C++ has nothing for.
    """
    return generate(program, PlainCpp(), source)


def _function(signature: str, body: str) -> str:
    return f"static inline {signature} {{\n{body}\n}}"


def _helpers() -> dict[str, Helper]:
    """Conversions that a GPU has instructions for."""
    as_float, as_bits = (
        _BIT_CASTS[pair] for pair in (("uint32", "float32"), ("float32", "uint32"))
    )
    own = {
        "odd_f32": (
            "float odd_f32(double x)",
            "  float y = (float)x;\n  if (fabs((double)y) > fabs(x)) y = nextafterf(y, 0.0f);\n"
            f"  return y < x || y > x ? {as_float}({as_bits}(y) | 1u) : y;",
        ),
        "store4": (
            "void store4(unsigned char* p, long long i, unsigned made)",
            "  unsigned at = i % 2 * 4;\n"
            "  p[i / 2] = p[i / 2] & ~(15u << at) | (made & 15u) << at;",
        ),
        "f16_to_f32": ("float f16_to_f32(f16 x)", "  return (float)block::cast<_Float16>(x);"),
        "f16_from_f32": ("f16 f16_from_f32(float x)", "  return block::cast<f16>((_Float16)x);"),
        "bf16_from_f32": (
            "bf16 bf16_from_f32(float x)",
            f"  unsigned bits = {as_bits}(x);\n"
            "  return x != x ? 0x7fff : (bf16)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);",
        ),
    }
    made = {
        name: Helper(_function(*text), tuple({name.split("_")[0]} & {"f16", "bf16"}))
        for name, text in own.items()
    }
    return {**common_helpers(_function, _BIT_CASTS, "block::high_product"), **made}


class PlainCpp(Dialect):
    """C++17 with GNU extensions, for a machine that has nothing but threads."""

    language = "plain C++"
    prelude = Path(__file__).with_name("threads.h").read_text(encoding="utf-8").rstrip()
    restrict = "__restrict__"
    thread_index = "block::thread"
    block_indices = ("block::index[0]", "block::index[1]", "block::index[2]")
    trap = "block::fail();"
    bit_casts = _BIT_CASTS
    helpers = _helpers()
    math = {"rsqrt": "rsqrt"}
    words = frozenset({"block", "std", "min", "max", "grid_"})
    pattern = r"atomic_\w+|run_\w+"

    @property
    def platform(self) -> str:
        return self.language

    def check(self, helper: Helper) -> None:
        """Every helper is plain C++."""

    def kernel(self, function: Function) -> str:
        params = [f"{c_type} {name}" for c_type, name in function.params]
        names = ", ".join(name for _, name in function.params)
        lines = [f"static void run_{function.entry}({', '.join(params)})", "{"]
        if function.shared_bytes is not None:
            size = max(1, function.shared_bytes)
            lines.append(f"  alignas(1024) static unsigned char shared_memory[{size}];")
        return "\n".join(
            [
                *(*lines, *function.lines, "}", ""),
                f'extern "C" int {function.entry}({", ".join(["const int* grid_", *params])})',
                "{",
                f"  return block::launch({function.threads}, grid_, [=] {{",
                *(f"    run_{function.entry}({names});", "  });", "}"),
            ]
        )

    def source_kernel(self, kernel: SourceKernel) -> str:
        raise self.missing("a kernel of CUDA source")

    def table(self, c_type: str, name: str, entries: str) -> str:
        return f"static const {c_type} {name}[16] = {{{entries}}};"

    def unroll(self, whole: bool) -> str:
        return ""

    def assume(self, condition: str) -> str:
        return f"if (!{wrapped(condition)}) __builtin_unreachable();"

    def vector_type(self, c_type: str, count: int) -> str:
        return f"block::Vector<{c_type}, {count}>"

    def vector(self, c_type: str, parts: list[str]) -> str:
        return f"block::vector<{c_type}>({', '.join(parts)})"

    def intrinsic(self, name: str, args: list[str], dtype: DType) -> str | None:
        if name != "popcount":
            return None
        return f"__builtin_popcount{'ll' if dtype.bits == 64 else ''}({args[0]})"

    def atomic(
        self, kind: AtomicKind, dtype: DType, place: str, value: str, writer: KernelWriter
    ) -> str:
        """A plain update: threads take turns only where they wait, so no other thread comes
        between.
        """
        c_type = writer.expressions.c_type(dtype)
        name = f"atomic_{kind}_{c_type.replace(' ', '_')}"
        body = f"  {c_type} old = *p;\n  *p = ({c_type})({writer.combined(kind, dtype)});\n"
        made = _function(f"{c_type} {name}({c_type}* p, {c_type} x)", f"{body}  return old;")
        return f"{writer.expressions.use(name, Helper(made))}({place}, {value})"

    def vector_addition(self, dtype: DType, lanes: int, scope: str) -> tuple[str, Helper]:
        raise self.missing(f"an atomic addition to {lanes} neighbours")

    def statement(self, stmt: Stmt, writer: KernelWriter) -> list[str]:
        match stmt:
            case simt.Barrier(number, count, wait):
                return [f"block::barrier({number}, {count}, {'true' if wait else 'false'});"]
            case simt.WarpBarrier(mask):
                return [f"block::warp_barrier({writer.expressions(mask)});"]
            case simt.Fence("block" | "grid"):
                return []
            case simt.Exchange():
                dtype = writer.expressions.c_type(stmt.var.dtype)
                name = writer.expressions.named(stmt.var)
                return [f"const {dtype} {name} = {self._exchange(stmt, writer.expressions)};"]
        raise self.missing(shown(stmt))

    def _exchange(self, stmt: simt.Exchange, text: Callable[..., str]) -> str:
        args = [text(arg) for arg in stmt.args]
        mask = "~0u" if stmt.mask is None else text(stmt.mask)
        group, _, kind = stmt.kind.partition("_")
        if group == "shfl":
            return f"block::{stmt.kind}({mask}, {', '.join(args)}, {stmt.width})"
        if group == "block":
            return _BLOCK[kind].format(f"block::count({args[0]})")
        if group == "warp" and str(stmt.var.dtype) not in CODES:
            combine = f"[](auto x, auto y) {{ return {_COMBINED[kind]}; }}"
            return f"block::warp({args[0]}, {combine})"
        if stmt.kind in ("any_sync", "all_sync", "ballot"):
            return f"block::{stmt.kind}({mask}, {args[0]})"
        raise self.missing(stmt.kind)
