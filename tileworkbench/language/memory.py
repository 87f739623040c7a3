"""Memory of a block: tiles in shared memory, fragments spread over its threads, arrays and scalars
of each thread.
"""

from __future__ import annotations

import math
from typing import Any

from tileworkbench.compiler.diagnostics import (
    ShapeError,
    TileTypeError,
    TileValueError,
    UnsupportedError,
)
from tileworkbench.compiler.frontend.annotations import as_shape, workspace
from tileworkbench.compiler.frontend.buffers import new_buffer
from tileworkbench.compiler.frontend.builder import Builder, current, in_kernel
from tileworkbench.compiler.frontend.dtypes import is_dtype, to_dtype
from tileworkbench.compiler.frontend.loops import refuse_in_parallel
from tileworkbench.compiler.frontend.regions import to_buffer, to_operand
from tileworkbench.compiler.frontend.scopes import refuse_loads
from tileworkbench.compiler.frontend.tensors import TensorValue, VectorTensor, difference
from tileworkbench.compiler.frontend.values import (
    Value,
    VarCell,
    deeper,
    describe,
    extent_expr,
    fitting,
    index_expr,
    is_number,
    to_value,
)
from tileworkbench.compiler.frontend.wide_indices import exact_extent
from tileworkbench.compiler.ir import build
from tileworkbench.compiler.ir.expr import AddressOf, Buffer, Const, Expr, Var
from tileworkbench.compiler.ir.printer import show_shape
from tileworkbench.compiler.ir.stmt import Alias, Alloc, Let, Pointer
from tileworkbench.compiler.ir.types import DType

_ONE = build.int_const(1)
_SCOPES = {
    "shared": "shared",
    "shared.dyn": "shared",
    "local.fragment": "local.fragment",
    "local": "local",
    "local.var": "local.var",
}


def alloc_shared(shape: Any, dtype: Any, scope: str = "shared.dyn") -> TensorValue:
    """A tile of `shape` (a sequence or one extent, all constant) in the block's shared memory,
    contents undefined. Elements of a vector dtype are read and written whole.

    Raises `TileTypeError` or `TileValueError` for a wrong dtype, scope or extent, and
    `ResourceError` for a tile larger than any memory.

    >>> t = T.alloc_shared((64, 64), T.float16)
    >>> T.copy(A, t)
    """
    return _allocate("T.alloc_shared", "shared", shape, dtype, scope)


def alloc_fragment(shape: Any, dtype: Any, scope: str = "local.fragment") -> TensorValue:
    """A tile of `shape` spread over the registers of the block's threads; the compiler chooses
    which thread holds what.

    Its elements are accessed inside T.Parallel. Raises as `alloc_shared`.

    >>> t = T.alloc_fragment((64, 64), T.float32)
    >>> T.copy(A, t)
    """
    return _allocate("T.alloc_fragment", "fragment", shape, dtype, scope)


def alloc_local(shape: Any, dtype: Any, scope: str = "local") -> TensorValue:
    """An array of `shape` that each thread has for itself. Raises as `alloc_shared`.

    >>> t = T.alloc_local((4,), T.float32)
    """
    return _allocate("T.alloc_local", "local", shape, dtype, scope)


def alloc_tmem(shape: Any, dtype: Any) -> TensorValue:
    """A tile of at least two dimensions in tensor memory, which is shared memory on a CPU and on
    GPUs before Blackwell; there is no code for later ones. Raises as `alloc_shared`.

    >>> t = T.alloc_tmem((64, 64), T.float32)
    """
    if len(as_shape(shape)) < 2:
        raise TileValueError("T.alloc_tmem needs a shape of at least two dimensions")
    builder = in_kernel("T.alloc_tmem")
    builder.uses.append(("T.alloc_tmem", builder.site))
    return _allocate("T.alloc_tmem", "tmem", shape, dtype, "shared")


def alloc_global(shape: Any, dtype: Any) -> TensorValue:
    """A workspace in global memory, contents undefined, that all blocks of a call share and that
    lives as long as the call.

    Its extents may be symbols, as those of parameters. Raises `TileTypeError` or `TileValueError`
    for a wrong dtype or extent.

    >>> t = T.alloc_global((64, 64), T.float16)
    >>> T.copy(A, t)
    """
    element = _element("T.alloc_global", dtype)
    return workspace(as_shape(shape), element)


def alloc_buffer(
    shape: Any, dtype: Any = "float32", scope: str = "global", annotations: Any = None
) -> TensorValue:
    """Memory of a scope: "global" as `alloc_global`, "shared" and "shared.dyn" as `alloc_shared`,
    "local.fragment" as `alloc_fragment`, "local" as `alloc_local`. Raises as these.

    >>> t = T.alloc_buffer((64, 64), T.float16, scope="shared")
    >>> T.copy(A, t)
    """
    if scope == "global":
        return alloc_global(shape, dtype)
    return _allocate("T.alloc_buffer", "tile", shape, dtype, scope)


def _allocate(construct: str, name: str, shape: Any, dtype: Any, scope: Any) -> TensorValue:
    builder = in_kernel(construct)
    if scope != "local":
        refuse_in_parallel(builder, construct)
    if not isinstance(scope, str) or _SCOPES.get(scope, "local.var") == "local.var":
        shown = f"'{scope}'" if isinstance(scope, str) or is_dtype(scope) else describe(scope)
        raise TileValueError(
            f"{shown} is not a scope {construct} can allocate in",
            hint="give the extents as a tuple, as in (M, N)"
            if is_dtype(scope)
            else "use 'shared', 'shared.dyn', 'local.fragment' or 'local'",
        )
    extents = tuple(extent_expr(extent, f"an extent of {construct}") for extent in as_shape(shape))
    if not extents:
        raise TileValueError(
            f"{construct} needs at least one extent", hint="a scalar is T.alloc_var(dtype)"
        )
    if any(build.const_int(extent) is None for extent in extents):
        raise TileValueError(
            f"the extents of {construct} must be known while compiling",
            hint="use a constant tile size; T.copy pads what lies outside a tensor",
        )
    element = to_dtype(dtype)
    if element.lanes > 1:
        extents = (*extents, build.int_const(element.lanes))
    element = _element(construct, element.scalar)
    fresh = builder.fresh(builder.hint(0, name))
    buffer = new_buffer(fresh, element, extents, _SCOPES[scope])
    builder.emit(Alloc(buffer))
    kind = VectorTensor if to_dtype(dtype).lanes > 1 else TensorValue
    return kind(buffer, builder.bind(buffer.name, allocated=True))


def _element(construct: str, dtype: Any) -> DType:
    made = to_dtype(dtype)
    if made.lanes > 1 or made.kind == "handle":
        raise UnsupportedError(f"{construct} of '{made}' is not supported yet")
    return made


def reshape(buffer: Any, shape: Any) -> TensorValue:
    """The memory of `buffer` with another shape of as many elements, in row-major order.

    Raises `ShapeError` for another number of elements and `TileValueError` for memory that cannot
    be seen so.

    >>> flat = T.reshape(A, (4096,))
    >>> T.copy(flat[0:64], row)
    """
    return _view("T.reshape", buffer, shape, None)


def view(buffer: Any, shape: Any = None, dtype: Any = None, strides: Any = None) -> TensorValue:
    """The memory of `buffer` with another shape, dtype or both, the bits in the same order: of two
    4-bit elements in a byte the even one is the low half.

    Without a shape the last extent changes with the size of the dtype. With `strides`, in elements,
    a tensor in global memory is seen in part. Raises as `reshape`.

    >>> words = T.view(A, dtype=T.int16)
    >>> T.copy(words[0, 0:64], word)
    """
    if strides is not None:
        return strided_view(buffer, shape, strides, dtype, "T.view")
    return _view("T.view", buffer, shape, dtype)


def strided_view(
    data: Any, shape: Any, strides: Any, dtype: Any, construct: str = "T.StridedTensor"
) -> TensorValue:
    """What `T.StridedTensor(shape, strides, dtype, data)` is inside a kernel: elements of a tensor
    in global memory, `strides` apart, from its first on.

    Raises `TileValueError` for other memory, and `ShapeError` where the last element is not known
    to lie inside.
    """
    builder = in_kernel(construct)
    refuse_in_parallel(builder, construct)
    source = to_buffer(data, construct, "source")
    element = source.dtype if dtype is None else _element(construct, dtype)
    if source.scope != "global" or source.strides or min(element.bits, source.dtype.bits) < 8:
        raise TileValueError(
            f"{construct} with strides needs a contiguous tensor in global memory, and "
            f"'{source.name}' is none"
        )
    extents = tuple(_extent(builder, e, construct) for e in as_shape(shape))
    steps = tuple(extent_expr(s, f"a stride of {construct}") for s in as_shape(strides))
    if len(extents) != len(steps):
        raise TileValueError(
            f"a tensor with {len(extents)} extents needs as many strides, not {len(steps)}"
        )
    span: Expr = _ONE
    for extent, step in zip(extents, steps, strict=True):
        span = build.add(span, build.mul(build.sub(extent, _ONE), step))
    needed, size = build.const_int(span), build.const_int(build.product(source.shape))
    inside = needed is not None and needed * element.bits <= (size or 0) * source.dtype.bits
    if not inside:
        raise ShapeError(
            f"{construct} cannot see '{source.name}', {show_shape(source.shape)} of "
            f"'{source.dtype}', as {show_shape(extents)} of '{element}' with the strides "
            f"{show_shape(steps)}",
            hint="the last element must lie inside, which has to be known while compiling",
        )
    first = AddressOf(source, tuple(build.int_const(0) for _ in source.shape))
    name = builder.fresh(builder.hint(0, f"{source.name}_view"))
    buffer = new_buffer(name, element, extents, "global", steps)
    builder.emit(Pointer(buffer, first))
    return TensorValue(buffer, builder.bind(name, allocated=True))


def tensor_view(data: Any, shape: Any, dtype: Any) -> TensorValue:
    """What `T.Tensor(shape, dtype, data)` is inside a kernel. Raises as `reshape`."""
    return _view("T.Tensor", data, shape, dtype)


def _view(construct: str, value: Any, shape: Any, dtype: Any) -> TensorValue:
    builder = current(construct)
    refuse_in_parallel(builder, construct)
    source = to_buffer(value, construct, "source")
    if source.scope == "local.var":
        raise TileTypeError(f"{construct} of the variable '{source.name}' is not possible")
    if source.strides:
        raise TileValueError(
            f"{construct} needs contiguous memory, and '{source.name}' has strides"
        )
    made = source.dtype if dtype is None else to_dtype(dtype)
    element = _element(construct, made.scalar)
    if 6 in (element.bits, source.dtype.bits) and element.bits != source.dtype.bits:
        raise UnsupportedError(
            f"{construct} from '{source.dtype}' to '{element}': six bits have a byte of their own, "
            "and share none with others",
            hint="T.reinterpret does it element by element",
        )
    if shape is None:
        extents = (*source.shape[:-1], _rescaled(construct, source, made))
    else:
        extents = tuple(_extent(builder, extent, construct) for extent in as_shape(shape))
    if made.lanes > 1:
        extents = (*extents, build.int_const(made.lanes))
    old = build.mul(build.product(source.shape), build.int_const(source.dtype.bits))
    new = build.mul(build.product(extents), build.int_const(element.bits))
    if not extents or build.const_int(difference(old, new)) != 0:
        raise ShapeError(
            f"{construct} cannot see '{source.name}', {show_shape(source.shape)} of "
            f"'{source.dtype}', as {show_shape(extents)} of '{element}'",
            hint="both need the same number of bits, known while compiling",
        )
    name = builder.fresh(builder.hint(0, f"{source.name}_view"))
    buffer = new_buffer(name, element, extents, source.scope)
    builder.emit(Alias(buffer, source))
    kind = VectorTensor if made.lanes > 1 else TensorValue
    return kind(buffer, builder.bind(name, allocated=True))


def _extent(builder: Builder, value: Any, construct: str) -> Expr:
    expr = extent_expr(value, f"an extent of {construct}")
    return exact_extent(expr, builder.symbols.values())


def _rescaled(construct: str, source: Buffer, element: DType) -> Expr:
    """The last extent of `source` in elements of another size."""
    last, have, want = source.shape[-1], source.dtype.bits, element.bits * element.lanes
    if have >= want:
        return build.mul(last, build.int_const(have // want))
    count = build.const_int(last)
    if count is None or count * have % want:
        raise ShapeError(
            f"{construct} cannot divide the last extent of '{source.name}', "
            f"{show_shape(source.shape)}, into elements of '{element}'"
        )
    return build.int_const(count * have // want)


def make_tensor(ptr: Any, shape: Any, dtype: Any = "float32", strides: Any = None) -> TensorValue:
    """The tensor that begins at the address `ptr`: a parameter of type `T.ptr`, an element of a
    table of addresses (`T.Tensor((G,), T.ptr)`), or an `int64`.

    `strides` are in elements, row-major by default. Accesses outside `shape` follow the rule of
    global memory; that the memory exists is the caller's promise. Raises `TileTypeError` for an
    address or dtype that is none.

    >>> @T.prim_func
    ... def kernel(A: T.ptr, B: T.Tensor((64,), T.float32)):
    ...     with T.Kernel(1):
    ...         T.copy(T.make_tensor(A, (64,), T.float32), B)
    """
    builder = current("T.make_tensor")
    refuse_in_parallel(builder, "T.make_tensor")
    address = _address("T.make_tensor", ptr)
    if builder.enclosing("kernel") is None:
        refuse_loads(address)
    element = _element("T.make_tensor", dtype)
    extents = tuple(_named(e, "extent", "an extent") for e in as_shape(shape))
    steps = tuple(_named(s, "stride", "a stride") for s in as_shape(strides or ()))
    if steps and len(steps) != len(extents):
        raise TileValueError(
            f"a tensor with {len(extents)} extents needs as many strides, not {len(steps)}"
        )
    name = builder.fresh(builder.hint(0, "tensor"))
    buffer = new_buffer(name, element, extents, "global", steps)
    builder.emit(Pointer(buffer, address))
    return TensorValue(buffer, builder.bind(name, allocated=True))


def _address(construct: str, value: Any) -> Expr:
    made = to_value(value).expr
    if made.dtype.kind == "handle":
        return made
    if made.dtype not in ("int64", "uint64") and not isinstance(made, Const):
        raise TileTypeError(
            f"the address of {construct} must be a 'T.ptr' or an 'int64', not '{made.dtype}'"
        )
    return build.cast(made, "handle")


def _named(value: Any, name: str, what: str) -> Expr:
    """An extent or stride that is evaluated now, not where the tensor is used."""
    builder = current("T.make_tensor")
    expr = exact_extent(extent_expr(value, f"{what} of T.make_tensor"), builder.symbols.values())
    if isinstance(expr, Const | Var) or builder.enclosing("kernel") is None:
        return expr
    var = builder.fresh_var(name, expr.dtype)
    builder.emit(Let(var, expr))
    return var


def address_of(element: Any) -> Value:
    """The address of an element, for external functions: a value of type `T.ptr`.

    Raises `TileTypeError` for anything but an element of a tensor.

    >>> first = T.address_of(A[0, 0])
    """
    in_kernel("T.address_of")
    return pointer_to("T.address_of", element)


def access_ptr(
    tensor: Any, access: str = "rw", *extents: Any, offset: Any = 0, **hints: Any
) -> Value:
    """The address of a tensor's (or slice's) first element, or of one `offset` elements further on.

    `access` is "r", "w" or "rw"; it, `extents` and further keywords are hints. Raises
    `TileValueError` for another access.

    >>> first = T.access_ptr(A, "r")
    """
    in_kernel("T.access_ptr")
    if access not in ("r", "w", "rw"):
        raise TileValueError(f"{access!r} is not an access; use 'r', 'w' or 'rw'")
    return pointer_to("T.access_ptr", tensor, offset)


def pointer_to(construct: str, value: Any, offset: Any = 0) -> Value:
    """The address of an operand's first element, or of one `offset` elements further on.

    Raises `TileTypeError` for what has no address.
    """
    place = to_operand(value, construct, "operand")
    if place.buffer.scope in ("local.fragment", "local.var"):
        raise TileTypeError(
            f"{construct} needs memory, and '{place.buffer.name}' is in registers",
            hint="copy it into shared memory or a local array first",
        )
    if place.buffer.dtype.bits < 8 or place.buffer.dtype.is_bool:
        raise TileTypeError(f"{construct} of '{place.buffer.dtype}' is not possible")
    moved, binding = index_expr(offset, f"the offset of {construct}")
    mins = (*place.mins[:-1], build.add(place.mins[-1], moved))
    own = getattr(value, "binding", None)
    return Value(AddressOf(place.buffer, mins), deeper(own, binding))


def alloc_var(dtype: Any, *args: Any, init: Any = None, scope: str = "local.var") -> VarCell:
    """A mutable scalar of each thread: reading its name loads it, assigning to its name stores into
    it.

    `T.alloc_var(dtype)`, `T.alloc_var(dtype, init)` or `T.alloc_var(dtype, init=...)`; without an
    initial value it is zero. Raises `TileValueError` for an initial value that the dtype does not
    have.

    >>> n = T.alloc_var(T.int32, 0)
    >>> for k in T.serial(4):
    ...     n = n + k
    """
    builder = in_kernel("T.alloc_var")
    values = [arg for arg in args if not isinstance(arg, str)]
    scopes = [arg for arg in args if isinstance(arg, str)]
    if len(values) + (init is not None) > 1 or len(scopes) > 1:
        raise TileTypeError("T.alloc_var takes a dtype, one initial value and one scope")
    if (scopes[0] if scopes else scope) != "local.var":
        raise TileValueError("T.alloc_var allocates in the scope 'local.var' only")
    initial = values[0] if values else init
    element = DType("int64") if to_dtype(dtype).kind == "handle" else _element("T.alloc_var", dtype)
    buffer = Buffer(builder.fresh(builder.hint(0, "variable")), element, (), "local.var")
    builder.emit(Alloc(buffer, _initial(element, 0 if initial is None else initial)))
    return VarCell(buffer, builder.bind(buffer.name, allocated=True))


def _initial(dtype: DType, value: Any) -> Expr:
    if is_dtype(value):
        raise TileTypeError(f"the initial value of T.alloc_var is the dtype '{value}'")
    expr, _ = fitting(value, dtype)
    if not is_number(value) or not isinstance(expr, Const):
        return expr
    if not dtype.is_float and expr.value != value:
        raise TileValueError(f"the initial value {value} has no exact value in '{dtype}'")
    limit = float(dtype.max_value)
    if dtype.is_float and limit < abs(value) < math.inf and abs(expr.value) in (limit, math.inf):
        raise TileValueError(f"the initial value {value} is beyond what '{dtype}' holds")
    return expr
