"""Products of warpgroups as lines of CUDA C++: wgmma.mma_async with its fence, groups and waits
(PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions").

Compilers move arithmetic past inline PTX that does not name its registers. So registers pass
through an empty statement in front of the fence, and results through one behind their wait.
"""

from __future__ import annotations

from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.emit.c_like.helpers import Helper
from tileworkbench.compiler.emit.c_like.statements import KernelWriter
from tileworkbench.compiler.emit.c_like.text import bare, bits_of
from tileworkbench.compiler.emit.cuda.addresses import split_address
from tileworkbench.compiler.emit.cuda.features import PRODUCT
from tileworkbench.compiler.emit.cuda.functions import asm, function
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.expr import Address, Buffer
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.simt import (
    CommitGroup,
    Engine,
    Fence,
    SetRegisters,
    Start,
    WaitGroup,
    Wgmma,
)
from tileworkbench.compiler.ir.stmt import Stmt
from tileworkbench.compiler.layout.descriptors import Descriptor
from tileworkbench.compiler.machine.instructions import OPERAND_DTYPES, Scope
from tileworkbench.compiler.machine.machine import Machine

_THREADS = 128  # of a warpgroup
_RESULTS = {"float16": ("f16", "r"), "float32": ("f32", "f"), "int32": ("s32", "r")}
_SCALED = ("f16", "bf16", "tf32", "e4m3", "e5m2")  # with signs of A and B
_WORDS = {"f": "float", "r": "unsigned"}


def _plain(name: str, text: str) -> Helper:
    body = f'  asm volatile("{text}" ::: "memory");'
    return Helper(function(f"void {name}()", body), (), PRODUCT)


WGMMA: dict[str, Helper] = {
    "wgmma_fence": _plain("wgmma_fence", "wgmma.fence.sync.aligned;"),
    "wgmma_commit": _plain("wgmma_commit", "wgmma.commit_group.sync.aligned;"),
    "matrix_descriptor": Helper(
        function(
            "unsigned long long matrix_descriptor(unsigned address, unsigned long long form)",
            "  return form | (address & 0x3FFFF) >> 4;",
        )
    ),
}


def _wait_helper(pending: int) -> tuple[str, Helper]:
    """wgmma.wait_group takes its count as a literal."""
    name = f"wgmma_wait_{pending}"
    return name, _plain(name, f"wgmma.wait_group.sync.aligned {pending};")


def _registers_helper(count: int, increase: bool) -> tuple[str, Helper]:
    """setmaxnreg takes its count as a literal."""
    kind = "inc" if increase else "dec"
    name = f"{kind}_registers_{count}"
    return name, _plain(name, f"setmaxnreg.{kind}.sync.aligned.u32 {count};")


def _kept_helper(letter: str, count: int) -> tuple[str, Helper]:
    """An empty statement that compilers take to change these registers."""
    name = f"keep_{letter}32_{count}"
    outputs = ", ".join(f'"+{letter}"(x[{i}])' for i in range(count))
    text = function(f"void {name}({_WORDS[letter]}* x)", asm("", outputs, "", "memory"))
    return name, Helper(text)


def _product_helper(stmt: Wgmma) -> tuple[str, Helper]:
    """One instruction. `d` is updated in place, or replaced where `adds` is false."""
    a, b, c = (OPERAND_DTYPES[str(x.buffer.dtype)] for x in (stmt.a, stmt.b, stmt.a))
    c, letter = _RESULTS[str(stmt.c.buffer.dtype)]
    turned = [bool(form and form[3]) for form in (stmt.a_form, stmt.b_form)]
    shape = f"m{stmt.m}n{stmt.n}k{stmt.k}"
    name = f"wgmma_{shape}_{a}{'' if a == b else f'_{b}'}{'_f16' if c == 'f16' else ''}"
    name += "".join(f"_{x}t" for x, is_turned in zip("ab", turned, strict=True) if is_turned)
    count = _words(stmt)
    registers = 0 if stmt.a_form else 4
    at = iter(range(count + 8))

    def names(number: int) -> str:
        return ", ".join(f"%{next(at)}" for _ in range(number))

    results, left, right = f"{{{names(count)}}}", names(registers or 1), names(1)
    left = f"{{{left}}}" if registers else left
    options = ["p", *(("1", "1") if a in _SCALED else ())]
    if a in ("f16", "bf16"):
        options += [str(int(flag)) for flag in (turned if not registers else turned[1:])]
    lines = [
        "{ .reg .pred p; setp.ne.b32 p, %" + str(count + (registers or 1) + 1) + ", 0;",
        f" wgmma.mma_async.sync.aligned.{shape}.{c}.{a}.{b}",
        f" {results},",
        f" {left}, {right}, {', '.join(options)}; }}",
    ]
    text = "\n               ".join(f'"{line}"' for line in lines)
    outputs = ", ".join(f'"+{letter}"(d[{i}])' for i in range(count))
    inputs = ['"l"(a)'] if stmt.a_form else [f'"r"(a[{i}])' for i in range(registers)]
    inputs += ['"l"(b)', '"r"((int)adds)']
    given = "unsigned long long a" if stmt.a_form else "const unsigned* a"
    signature = f"void {name}{'' if stmt.a_form else '_rs'}"
    signature += f"(\n    {_WORDS[letter]}* d, {given}, unsigned long long b, bool adds)"
    body = (
        f"  asm volatile({text}\n               : {outputs}\n               : {', '.join(inputs)});"
    )
    name += "" if stmt.a_form else "_rs"
    return name, Helper(function(signature, body), (), PRODUCT)


def _words(stmt: Wgmma) -> int:
    """The registers of a lane that a result takes."""
    return stmt.m * stmt.n // _THREADS * stmt.c.buffer.dtype.bits // 32


def write(stmt: Stmt, writer: KernelWriter, machine: Machine) -> list[str] | None:
    """The lines of a statement about products of warpgroups, None for others."""
    use = writer.expressions.use
    match stmt:
        case Wgmma():
            return [_product(stmt, writer, machine)]
        case SetRegisters(count, increase):
            return [f"{use(*_registers_helper(count, increase))}();"]
        case Fence("wgmma"):
            return [f"{use('wgmma_fence')}();"]
        case CommitGroup(Engine.WGMMA):
            return [f"{use('wgmma_commit')}();"]
        case WaitGroup(engine=Engine.WGMMA):
            return _wait(stmt, writer)
    return None


def write_products(stmt: Start, writer: KernelWriter, depth: int) -> None:
    """A batch: the empty statement for its registers, the fence, the products."""
    products = [inner for inner in statements(stmt.body) if isinstance(inner, Wgmma)]
    operands = [product.a.buffer for product in products if not product.a_form]
    results = [product.c.buffer for product in products]
    for buffer in dict.fromkeys([*operands, *results]):
        writer.line(depth, _keep(buffer, writer))
    writer.in_flight.update(dict.fromkeys(results))
    writer.write(stmt.body, depth)


def _wait(stmt: WaitGroup, writer: KernelWriter) -> list[str]:
    """The wait, and behind it the empty statement for the results that it may have completed."""
    use = writer.expressions.use
    lines = [f"{use(*_wait_helper(stmt.pending))}();"]
    lines += [_keep(buffer, writer) for buffer in writer.in_flight]
    if not stmt.pending:
        writer.in_flight.clear()
    return lines


def _keep(buffer: Buffer, writer: KernelWriter) -> str:
    count = (const_int(buffer.shape[0]) or 0) * bits_of(buffer.dtype) // 32
    letter = "f" if buffer.dtype == "float32" else "r"
    name = writer.expressions.use(*_kept_helper(letter, count))
    words = writer.named(buffer)
    cast = f"({_WORDS[letter]}*)" if bits_of(buffer.dtype) == 32 and letter == "r" else ""
    return f"{name}({cast}{words});"


def _product(stmt: Wgmma, writer: KernelWriter, machine: Machine) -> str:
    """One instruction. Raises `UnsupportedError` where the machine has none of that shape."""
    if machine.matrix(stmt.shape, stmt.dtypes, Scope.WARPGROUP) is None:
        a, b, c = stmt.dtypes
        raise UnsupportedError(
            f"{machine.name} has no wgmma of {stmt.m} x {stmt.n} x {stmt.k} elements of "
            f"{a}, {b} and {c}"
        )
    name = writer.expressions.use(*_product_helper(stmt))
    left = (
        _descriptor(stmt.a, stmt.a_form, writer) if stmt.a_form else writer.register_words(stmt.a)
    )
    right = _descriptor(stmt.b, stmt.b_form, writer)
    clear = const_int(stmt.clear)
    adds = f"!({bare(writer.expressions(stmt.clear))})" if clear is None else str(not clear).lower()
    results = writer.expressions.address(stmt.c)
    if str(stmt.c.buffer.dtype) == "int32":
        results = writer.register_words(stmt.c)
    return f"{name}({results}, {left}, {right}, {adds});"


def _descriptor(address: Address, form: tuple[int, ...], writer: KernelWriter) -> str:
    """The descriptor of the tile, and how far in it the operand begins."""
    leading, stride, swizzle, transposed = form
    bits = Descriptor(leading, stride, swizzle, bool(transposed)).bits
    with writer.uniform():
        base, offset = split_address(writer, address)
    made = f"{writer.expressions.use('matrix_descriptor')}({base}, {bits:#x}ull)"
    return f"{made} + ({offset}) / 16" if offset else made
