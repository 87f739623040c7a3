"""Vectors of tensors, read by places of 32 bits.

clang computes an address of 64 bits for each load of a loop: it takes sums apart that scalar
registers could hold. A load of a buffer takes what is a thread's own and what is the wave's as two
numbers of 32 bits, and adds them itself; no iteration computes the former again.
"""

from __future__ import annotations

from math import prod

from tileworkbench.compiler.emit.c_like.helpers import Helper
from tileworkbench.compiler.emit.c_like.statements import KernelWriter
from tileworkbench.compiler.emit.c_like.text import bare, wrapped
from tileworkbench.compiler.emit.hip.declarations import VECTORS
from tileworkbench.compiler.emit.hip.functions import function
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.build import add, cast, const, mul
from tileworkbench.compiler.ir.expr import Buffer, Expr, Load, Ramp, Var
from tileworkbench.compiler.ir.rewrite import parameters, statements, variables, walk
from tileworkbench.compiler.ir.sizes import const_shape

_MOST = 1 << 31  # bytes of a tensor whose places are numbers of 32 bits
# 32-bit elements, which loads without a format ignore, but must be given ("Buffer resource").
_FORMAT = 0x27000

TENSORS: dict[str, Helper] = {
    "tensor_words": Helper(
        function(
            "u32x4 tensor_words(const void* at, unsigned bytes)",
            "  const unsigned long long place = (unsigned long long)at;\n"
            "  return (u32x4){(unsigned)place, (unsigned)(place >> 32) & 0xffff, bytes, "
            f"{_FORMAT:#x}}};",
        )
    )
}


def tensor_read(load: Load, kind: tuple[str, int], writer: KernelWriter) -> str | None:
    """A vector of a tensor, read in a loop: from a place of the thread's and one of the wave's.
    None for other memory, and for a tensor whose places are not known to have 32 bits.
    """
    (index,), (c_type, count) = load.indices, kind
    if writer.front.loop is None or not isinstance(index, Ramp) or count not in (2, 4):
        return None
    whole = load.dtype.lanes * load.buffer.dtype.bits == 32 * count
    words = whole and c_type in ("unsigned", "float")
    place = place_in_tensor(index.base, load.buffer, writer) if words else None
    if place is None:
        return None
    return f"{writer.expressions.use(*_load_helper(c_type, count))}({', '.join(place)}, 0)"


def place_in_tensor(
    index: Expr, buffer: Buffer, writer: KernelWriter
) -> tuple[str, str, str] | None:
    """The words of a tensor, and the bytes at which an element is as a number of the thread's and
    one of the wave's; None for other memory and larger tensors.
    """
    shape = const_shape(buffer)
    if buffer.scope != "global" or shape is None or buffer.strides:
        return None
    bytes_ = prod(shape) * buffer.dtype.bits // 8
    if buffer not in parameters(writer.program) or not 0 < bytes_ < _MOST:
        return None
    parts = split_place(index, buffer, writer)
    low = None if parts is None else writer.expressions.ranges.bounds(parts[0]).low
    if parts is None or low is None or low < 0:
        return None
    base, more = (bare(in_bytes(part, buffer, writer)) for part in parts)
    name = writer.named(buffer)
    made = f"{writer.expressions.use('tensor_words')}({name}, {bytes_}u)"
    words = writer.front.hoisted(made, (), f"words_of_{name}", "const u32x4 {name} = {text};")
    return words, more, base


def _load_helper(c_type: str, count: int) -> tuple[str, Helper]:
    """The compiler's own name of the instruction serves, which its older versions have no builtin
    for.
    """
    vector = f"{VECTORS[c_type]}x{count}"
    element = "f32" if c_type == "float" else "i32"
    text = (
        f"__device__ {vector} load_{vector}(u32x4 tensor, int more, int at, int how)\n"
        f'  __asm("llvm.amdgcn.raw.buffer.load.v{count}{element}");'
    )
    return f"load_{vector}", Helper(text)


def in_bytes(part: Expr, buffer: Buffer, writer: KernelWriter) -> str:
    """A number of elements in bytes."""
    size = buffer.dtype.bits // 8
    text = wrapped(writer.expressions(part))
    return f"{text} * {size}" if size > 1 and text != "0" else text


def split_place(index: Expr, buffer: Buffer, writer: KernelWriter) -> tuple[Expr, Expr] | None:
    """`index` as a sum of what all threads share and what is a thread's own, None where the latter
    is not known to have 32 bits. What loops that are written out count is with the latter: no loop
    changes it.
    """
    kernel, ranges = writer.kernel, writer.expressions.ranges
    size = max(buffer.dtype.bits // 8, 1)
    scalars = (param.value for param in writer.program.params if isinstance(param.value, Var))
    shared = {*kernel.vars, *scalars}
    for loop in statements(kernel.body):
        if isinstance(loop, st.For) and shared.issuperset(variables(loop.start)):
            shared.add(loop.var)
    form = ranges.linear(index)
    base: Expr = const(form.constant, index.dtype)
    more: Expr = const(0, index.dtype)
    for atom, factor in form.terms:
        part = mul(cast(atom, index.dtype), const(factor, index.dtype))
        used = set(variables(atom))
        loaded = any(isinstance(node, Load) for node in walk(atom))
        if used <= shared and writer.unrolled.isdisjoint(used) and not loaded:
            base = add(base, part)
        else:
            more = add(more, part)
    bounds = ranges.bounds(more)
    if bounds.low is None or bounds.high is None or bounds.low < 0:
        return None
    return (base, more) if (bounds.high + 1) * size <= _MOST else None
