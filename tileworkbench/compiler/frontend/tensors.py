"""Buffers as users hold them: shape, dtype, elements and regions, and the rules of indexing.

An index is an integer or an integer value; a slice makes a region. A negative constant, or a value
that is provably negative, counts from the end; any other value does not wrap. A constant that lies
outside is an error.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

from tileworkbench.compiler.diagnostics import (
    TileIndexError,
    TileTypeError,
    TileValueError,
)
from tileworkbench.compiler.frontend.bounds import bounds
from tileworkbench.compiler.frontend.builder import Binding, Builder, active_builder, in_kernel
from tileworkbench.compiler.frontend.dtypes import TileDType
from tileworkbench.compiler.frontend.errors import caller_span
from tileworkbench.compiler.frontend.refusals import NotScalar
from tileworkbench.compiler.frontend.values import Value, deeper, fitting, from_expr, index_expr
from tileworkbench.compiler.frontend.vectors import Lane, VectorValue, broadcast, ramp
from tileworkbench.compiler.ir import build
from tileworkbench.compiler.ir import expr as ir
from tileworkbench.compiler.ir.expr import Buffer, Expr, Region, Var
from tileworkbench.compiler.ir.rewrite import walk
from tileworkbench.compiler.ir.sizes import strides_of
from tileworkbench.compiler.ir.stmt import Alloc, For, LoopKind, Store
from tileworkbench.compiler.ir.tile import Parallel


class TensorValue(NotScalar):
    """A buffer: a parameter, an output or something allocated."""

    __slots__ = ("binding", "buffer")

    def __init__(self, buffer: Buffer, binding: Binding | None = None) -> None:
        self.buffer = buffer
        self.binding = binding

    def use(self) -> Buffer:
        """The buffer. Raises `TileRuntimeError` after the frame that allocated it."""
        if self.binding is not None:
            self.binding.check()
        return self.buffer

    @property
    def name(self) -> str:
        """Its name in the program."""
        return self.buffer.name

    @property
    def shape(self) -> tuple[Any, ...]:
        """Extents: Python integers where they are known, values otherwise."""
        return tuple(from_expr(extent) for extent in self.buffer.shape)

    @property
    def strides(self) -> tuple[Any, ...]:
        """Distances in elements between neighbours along each dimension."""
        return tuple(from_expr(stride) for stride in strides_of(self.buffer))

    @property
    def data(self) -> TensorValue:
        """Its memory, for a view of it: `T.Tensor(shape, dtype, tensor.data)`."""
        return self

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.buffer.shape)

    @property
    def dtype(self) -> TileDType:
        """Element type."""
        return TileDType(self.buffer.dtype)

    def scope(self) -> str:
        """Memory scope: "global", "shared", "local.fragment" or "local"."""
        return self.buffer.scope

    def __getitem__(self, index: Any) -> Any:
        """An element as a value; a region when an index is a slice.

        Raises `TileIndexError` for a wrong number of indices.
        """
        return element_or_region(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        """Store into an element (helper functions that are not rewritten use this)."""
        self.store(index, value)

    def filled(self) -> TensorValue:
        """What T.fill writes to where it is given this tensor."""
        return self

    def check_stored(self, index: Any) -> None:
        """Raise for an element that cannot be assigned to, before its value is computed."""
        if not has_vector_index(index):
            check_target(self, index)

    def store(self, index: Any, value: Any) -> None:
        """Emit `self[index] = value`, cast to the tensor's dtype."""
        if isinstance(value, RegionValue) and has_vector_index(index):
            value = elements(value)
        if isinstance(value, VectorValue):
            store_vector(self, index, value)
            return
        indices = check_target(self, index)
        if isinstance(value, NotScalar):
            value.refuse()
        expr, _ = fitting(value, self.buffer.dtype)
        emit_store(Store(self.buffer, indices, expr))

    def __repr__(self) -> str:
        return f"<{self.buffer.scope} tensor {self.name}: {self.shape} {self.buffer.dtype}>"

    @property
    def described(self) -> str:
        return f"the tensor '{self.name}'"

    def refuse(self, *_: Any) -> NoReturn:
        raise TileTypeError(
            f"'{self.name}' is a whole tensor, and arithmetic works on elements",
            hint=f"index it, as in {self.name}[{', '.join('ijkl'[: self.ndim])}], inside "
            f"T.Parallel",
        )


class VectorTensor(TensorValue):
    """A tile whose elements are vectors: the lanes are a last dimension that indices leave out."""

    __slots__ = ()

    @property
    def lanes(self) -> int:
        """Lanes of an element."""
        return build.const_int(self.buffer.shape[-1]) or 1

    @property
    def plain(self) -> TensorValue:
        """The same memory with its lanes as a dimension."""
        return TensorValue(self.buffer, self.binding)

    @property
    def shape(self) -> tuple[Any, ...]:
        return self.plain.shape[:-1]

    @property
    def ndim(self) -> int:
        return len(self.buffer.shape) - 1

    @property
    def dtype(self) -> TileDType:
        return TileDType(self.buffer.dtype.with_lanes(self.lanes))

    def element(self, index: Any) -> Any:
        """`self[index]`: a vector, or a region that has all lanes."""
        items = _split(self, index)
        if any(isinstance(item, slice) for item in items):
            return element_or_region(self.plain, (*items, slice(None)))
        return element_or_region(self.plain, (*items, ramp(0, 1, self.lanes)))

    def check_stored(self, index: Any) -> None:
        """All is checked when it is stored."""

    def store(self, index: Any, value: Any) -> None:
        """`self[index] = value`: a vector of as many lanes, or a scalar for each of them."""
        items = (*_split(self, index), slice(0, self.lanes))
        made = value if isinstance(value, VectorValue) else broadcast(value, self.lanes)
        store_vector(self.plain, items, made)


class RegionValue(NotScalar):
    """A box of a buffer, made by slicing; what tile operators take."""

    __slots__ = ("binding", "region")

    def __init__(self, region: Region, binding: Binding | None) -> None:
        self.region = region
        self.binding = binding

    def use(self) -> Region:
        """The region. Raises `TileRuntimeError` after the frame of what it depends on."""
        if self.binding is not None:
            self.binding.check()
        return self.region

    @property
    def shape(self) -> tuple[Any, ...]:
        """Extents along each dimension."""
        return tuple(from_expr(extent) for extent in self.region.extents)

    @property
    def dtype(self) -> TileDType:
        """Element type."""
        return TileDType(self.region.buffer.dtype)

    @property
    def described(self) -> str:
        return f"a slice of '{self.region.buffer.name}'"

    def refuse(self, *_: Any) -> NoReturn:
        raise TileTypeError(
            f"a slice of '{self.region.buffer.name}' is a region, and arithmetic works on elements",
            hint="use single indices inside T.Parallel; slices are for T.copy, T.gemm and other "
            "tile operators",
        )


# Indexing


def whole(buffer: Buffer) -> Region:
    """The region of all elements."""
    return Region(buffer, tuple(build.int_const(0) for _ in buffer.shape), buffer.shape)


def element_or_region(tensor: TensorValue, index: Any) -> Any:
    """`tensor[index]`: a `Value`, or a `RegionValue` when some index is a slice."""
    if isinstance(tensor, VectorTensor):
        return tensor.element(index)
    buffer, items = tensor.use(), _split(tensor, index)
    if any(isinstance(item, VectorValue) for item in items):
        return _vector_load(tensor, items)
    if any(isinstance(item, slice) for item in items):
        return _region(tensor, items)
    indices, binding, wrong = _indices(tensor, items)
    check_access(buffer, indices)
    load = ir.Load(buffer, indices)
    builder = active_builder()
    if wrong is not None and builder is not None:
        wrong.span = caller_span()  # where it is written, not where it turns out to be executed
        builder.doubts[load] = wrong
    return Value(load, binding)


def elements(value: RegionValue) -> VectorValue:
    """The elements of a slice along one dimension as a vector.

    Raises `TileValueError` where their number is not known.
    """
    region = value.use()
    wide = [d for d, e in enumerate(region.extents) if build.const_int(e) != 1] or [-1]
    lanes = build.const_int(region.extents[wide[0]])
    if len(wide) > 1 or lanes is None:
        raise TileValueError(
            f"{value.described} is no vector",
            hint="a vector is a slice of constant extent along one dimension; T.copy takes any",
        )

    def at(lane: Expr) -> Expr:
        indices = list(region.mins)
        indices[wide[0]] = build.add(indices[wide[0]], lane)
        check_access(region.buffer, tuple(indices))
        return ir.Load(region.buffer, tuple(indices))

    return VectorValue(lanes, at, value.binding)


def _vector_load(tensor: TensorValue, items: tuple[Any, ...]) -> VectorValue:
    """The elements that a vector of indices names."""
    lanes, places, binding = _vector_index(tensor, items)

    def at(lane: Expr) -> Expr:
        indices = tuple(place(lane) for place in places)
        check_access(tensor.buffer, indices)
        return ir.Load(tensor.buffer, indices)

    return VectorValue(lanes, at, binding)


def _vector_index(
    tensor: TensorValue, items: tuple[Any, ...]
) -> tuple[int, list[Lane], Binding | None]:
    """How many elements are named, the index of each lane along each dimension, and on what they
    depend.

    Raises `TileTypeError` for several vectors and `TileValueError` for a slice of unknown extent.
    """
    vectors = [item for item in items if isinstance(item, VectorValue | slice)]
    if len(vectors) != 1:
        raise TileTypeError(
            f"'{tensor.name}' is indexed with {len(vectors)} vectors or slices at once; one is "
            "possible"
        )
    binding, places, lanes = tensor.binding, list[Lane](), 0
    for dim, item in enumerate(items):
        if isinstance(item, VectorValue):
            lanes, depends = item.lanes, item.binding
            places.append(_vector_place(tensor, dim, item))
        elif isinstance(item, slice):
            low, extent, depends = _slice(tensor, dim, item)
            lanes = build.const_int(extent) or 0
            if not lanes:
                raise TileValueError(
                    f"a slice of '{tensor.name}' that is assigned a vector needs a constant extent"
                )
            places.append(partial(build.add, low))
        else:
            index, depends = index_expr(item, f"an index of '{tensor.name}'")
            places.append(partial(_same, _inside(tensor, dim, index)))
        binding = deeper(binding, depends)
    return lanes, places, binding


def _vector_place(tensor: TensorValue, dim: int, index: VectorValue) -> Lane:
    """The index of each lane, a negative one counted from the end; of a lane whose sign is not
    known, that is found at run time.
    """
    builder = active_builder()
    ranges = builder.ranges if builder is not None else {}
    ends = [bounds(index.at(build.int_const(lane)), ranges) for lane in (0, index.lanes - 1)]
    extent = tensor.buffer.shape[dim]
    if all(low is not None and low >= 0 for low, _ in ends):
        return index.at
    if all(high is not None and high < 0 for _, high in ends):
        return lambda lane: build.add(index.at(lane), extent)

    def place(lane: Expr) -> Expr:
        at = index.at(lane)
        negative = build.binary("lt", at, build.const(0, at.dtype))
        return build.select(negative, build.add(at, extent), at)

    return place


def _same(index: Expr, lane: Expr) -> Expr:
    return index


def store_vector(tensor: TensorValue, index: Any, value: VectorValue) -> None:
    """Emit the stores of the lanes of `value` as a loop.

    Raises `TileValueError` for another number of elements.
    """
    builder = in_kernel("a store")
    tensor.use()
    if not has_vector_index(index):
        value.refuse()
    lanes, places, _ = _vector_index(tensor, _split(tensor, index))
    if lanes != value.lanes:
        raise TileValueError(
            f"a vector of {value.lanes} lanes is stored in {lanes} elements of '{tensor.name}'"
        )
    if value.binding is not None:
        value.binding.check()
    lane = builder.fresh_var("lane", "int32")
    indices = tuple(place(lane) for place in places)
    check_access(tensor.buffer, indices)
    stored = build.cast(value.at(lane), tensor.buffer.dtype)
    if any(isinstance(n, ir.Load) and n.buffer is tensor.buffer for n in walk(stored)):
        kept = evaluate_vector(builder, "vector", value)  # all is read before anything is written
        stored = build.cast(kept.at(lane), tensor.buffer.dtype)
    body = Store(tensor.buffer, indices, stored, site=builder.site)
    fragments = _fragment_accesses(body)
    if fragments and builder.enclosing("parallel") is None:
        raise TileValueError(
            f"outside T.Parallel the fragment '{fragments[0][0].name}' has no vectors",
            hint="use T.copy or T.fill",
        )
    zero, one, count = build.int_const(0), build.int_const(1), build.int_const(lanes)
    builder.emit(For(lane, zero, count, one, LoopKind.VECTORIZED, body))


def evaluate_vector(builder: Builder, name: str, value: VectorValue) -> VectorValue:
    """`value` as it is now: in an array of the thread's own when it reads memory."""
    first = value.at(build.int_const(0))
    if not any(isinstance(node, ir.Load) for node in walk(first)):
        return value
    own = Buffer(builder.fresh(name), first.dtype, (build.int_const(value.lanes),), "local")
    builder.emit(Alloc(own))
    kept = TensorValue(own, builder.bind(own.name, allocated=True))
    store_vector(kept, slice(None), value)
    return VectorValue(value.lanes, lambda lane: ir.Load(own, (lane,)), kept.binding)


def has_vector_index(index: Any) -> bool:
    """Whether an index names several elements."""
    items = index if isinstance(index, tuple) else (index,)
    return any(isinstance(item, VectorValue | slice) for item in items)


def _split(tensor: TensorValue, index: Any) -> tuple[Any, ...]:
    items = index if isinstance(index, tuple) else (index,)
    if any(item is Ellipsis or item is None for item in items):
        raise TileIndexError(f"'{tensor.name}' is indexed with '...' or None; write every index")
    if len(items) != tensor.ndim:
        raise TileIndexError(
            f"'{tensor.name}' has {_count(tensor.ndim, 'dimension')} and is indexed with "
            f"{_count(len(items), 'index')}",
            hint=f"its shape is {tensor.shape}; take whole dimensions with ':'",
        )
    return items


def _count(number: int, noun: str) -> str:
    plural = "indices" if noun == "index" else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"


def _indices(
    tensor: TensorValue, items: tuple[Any, ...]
) -> tuple[tuple[Expr, ...], Binding | None, TileIndexError | None]:
    """The indices, negative ones counted from the end, on what they depend, and the error of the
    first that is outside wherever it is used.
    """
    binding = tensor.binding
    indices: list[Expr] = []
    wrong: TileIndexError | None = None
    for dim, item in enumerate(items):
        expr, depends = index_expr(item, f"an index of '{tensor.name}'")
        index, outside = _wrapped(tensor, dim, expr)
        indices.append(index)
        wrong = wrong or outside
        binding = deeper(binding, depends)
    return tuple(indices), binding, wrong


def _wrapped(tensor: TensorValue, dim: int, index: Expr) -> tuple[Expr, TileIndexError | None]:
    """`index` counted from the end when it is negative, and an error when all its values lie
    outside: in what may never be executed that is found later, by what is known of conditions, and
    a tensor without elements is guarded like all global memory.
    """
    builder = active_builder()
    low, high = bounds(index, builder.ranges if builder is not None else {})
    extent = tensor.buffer.shape[dim]
    size = build.const_int(extent)
    wraps = high is not None and high < 0
    outside = size and (
        (wraps and high is not None and high < -size) or (low is not None and low >= size)
    )
    wrong = None
    if outside and not (builder is not None and builder.is_conditional):
        wrong = TileIndexError(
            f"index {Value(index)!r} is out of range for dimension {dim} of '{tensor.name}', "
            f"which has extent {size}"
        )
    return build.add(index, extent) if wraps else index, wrong


def _inside(tensor: TensorValue, dim: int, index: Expr) -> Expr:
    """`_wrapped` of an index that is used where it stands."""
    inside, wrong = _wrapped(tensor, dim, index)
    if wrong is not None:
        raise wrong
    return inside


def _region(tensor: TensorValue, items: tuple[Any, ...]) -> RegionValue:
    binding = tensor.binding
    mins: list[Expr] = []
    extents: list[Expr] = []
    for dim, item in enumerate(items):
        if isinstance(item, slice):
            low, extent, depends = _slice(tensor, dim, item)
        else:
            low, depends = index_expr(item, f"an index of '{tensor.name}'")
            low, extent = _inside(tensor, dim, low), build.int_const(1)
        mins.append(low)
        extents.append(extent)
        binding = deeper(binding, depends)
    return RegionValue(Region(tensor.buffer, tuple(mins), tuple(extents)), binding)


def _slice(tensor: TensorValue, dim: int, item: slice) -> tuple[Expr, Expr, Binding | None]:
    """Start and extent of a slice.

    Raises `TileValueError` for a step other than 1 or an empty slice.
    """
    if item.step is not None and not (isinstance(item.step, int) and item.step == 1):
        raise TileValueError(
            f"a slice of '{tensor.name}' has the step {item.step}; only step 1 is a region"
        )
    shape = tensor.buffer.shape[dim]
    what = f"a slice bound of '{tensor.name}'"
    low, first = (build.int_const(0), None) if item.start is None else index_expr(item.start, what)
    high, last = (shape, None) if item.stop is None else index_expr(item.stop, what)
    low, high = _from_end(low, shape), _from_end(high, shape)
    extent = difference(high, low)
    number = build.const_int(extent)
    if number is not None and number <= 0:
        raise TileValueError(
            f"the slice {Value(low)!r}:{Value(high)!r} of dimension {dim} of '{tensor.name}' is "
            f"empty"
        )
    return low, extent, deeper(first, last)


def _from_end(bound: Expr, shape: Expr) -> Expr:
    number = build.const_int(bound)
    return build.add(shape, bound) if number is not None and number < 0 else bound


def difference(a: Expr, b: Expr) -> Expr:
    """`a - b` where common summands cancel, so that `x + 64 - x` is 64 and `(i + 1) * 64 - i * 64`
    too.
    """
    total = _terms(a, 1, {})
    _terms(b, -1, total)
    if all(count == 0 for key, count in total.items() if key is not None):
        return build.int_const(total.get(None, 0))
    return build.sub(a, b)


def _terms(value: Expr, factor: int, total: dict[Expr | None, int]) -> dict[Expr | None, int]:
    """Add `factor * value` to `total`, a sum of coefficient times term; the key None is the
    constant.
    """
    number = build.const_int(value)
    match value:
        case _ if number is not None:
            total[None] = total.get(None, 0) + factor * number
        case ir.Binary("add" | "sub" as op, a, b) if value.dtype.is_int:
            _terms(a, factor, total)
            _terms(b, factor if op == "add" else -factor, total)
        case ir.Binary("mul", a, ir.Const(count)) | ir.Binary("mul", ir.Const(count), a):
            _terms(a, factor * int(count), total)
        case ir.Binary("mul", ir.Binary("add" | "sub" as op, a, b), c) | ir.Binary(
            "mul", c, ir.Binary("add" | "sub" as op, a, b)
        ):
            _terms(build.mul(a, c), factor, total)
            _terms(build.mul(b, c), factor if op == "add" else -factor, total)
        case _:
            total[value] = total.get(value, 0) + factor
    return total


# Access rules


def check_access(buffer: Buffer, indices: tuple[Expr, ...]) -> None:
    """Raise `TileValueError` for a fragment or local array indexed in a way that no thread owns."""
    builder = active_builder()
    if builder is None or buffer.scope not in ("local.fragment", "local"):
        return
    used: set[Var] = set()
    for index in indices:
        used |= parallel_variables(builder, index)
    if buffer.scope == "local" and used:
        raise TileValueError(
            f"'{buffer.name}' is private to each thread and is indexed by the T.Parallel "
            f"variable '{_first(used)}'",
            hint="allocate it with T.alloc_fragment or T.alloc_shared, or use T.serial for this "
            "loop",
        )
    dynamic = used & builder.dynamic_parallel
    if dynamic:
        raise TileValueError(
            f"the fragment '{buffer.name}' is indexed by '{_first(dynamic)}', a T.Parallel "
            f"variable without a constant extent",
            hint="give the loop a constant extent and guard the body with 'if'",
        )


def _first(names: set[Var]) -> str:
    return min(var.name for var in names)


def parallel_variables(builder: Builder, value: Expr) -> set[Var]:
    """The T.Parallel variables that `value` depends on, through lets too."""
    loops: set[Var] = set()
    for node in walk(value):
        if isinstance(node, Var):
            loops |= builder.parallel.get(node, frozenset())
    return loops


# Stores


def check_target(tensor: TensorValue, index: Any) -> tuple[Expr, ...]:
    """The indices of an element that is assigned to.

    Raises for a slice and for indices that are not legal.
    """
    buffer, items = tensor.use(), _split(tensor, index)
    if buffer.scope == "shared.barrier":
        raise TileTypeError(
            f"'{tensor.name}' holds memory barriers, which cannot be assigned to",
            hint="pass one to T.mbarrier_arrive or T.mbarrier_wait_parity",
        )
    if any(isinstance(item, slice) for item in items):
        raise TileTypeError(
            f"a slice of '{tensor.name}' cannot be assigned to",
            hint="use T.copy or T.fill, or assign single elements inside T.Parallel",
        )
    indices, _, wrong = _indices(tensor, items)
    if wrong is not None:
        raise wrong
    check_access(buffer, indices)
    return indices


def emit_store(stmt: Store) -> None:
    """Emit a store; one that touches a fragment outside T.Parallel becomes a T.Parallel of one
    iteration.

    Raises `TileValueError` when a fragment is accessed there at anything but index 0.
    """
    builder = in_kernel("a store")
    touched = [] if builder.enclosing("parallel") is not None else _fragment_accesses(stmt)
    if not touched:
        builder.emit(stmt)
        return
    for buffer, indices in touched:
        if any(build.const_int(index) != 0 for index in indices):
            raise TileValueError(
                f"outside T.Parallel only element 0 of the fragment '{buffer.name}' can be "
                f"accessed",
                hint="put the assignment into 'for i in T.Parallel(...)', which spreads a "
                "fragment over the threads",
            )
    only = builder.fresh_var("_", "int32")
    builder.emit(Parallel((only,), (build.int_const(1),), replace(stmt, site=builder.site)))


def _fragment_accesses(stmt: Store) -> list[tuple[Buffer, tuple[Expr, ...]]]:
    touched = [(stmt.buffer, stmt.indices)]
    for root in (stmt.value, *stmt.indices):
        touched += [(node.buffer, node.indices) for node in walk(root) if isinstance(node, ir.Load)]
    return [access for access in touched if access[0].scope == "local.fragment"]
