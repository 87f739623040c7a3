"""`Layout`: where the elements of a buffer live in memory (paper, section 4.1 and Figure 5)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from tileworkbench.compiler.diagnostics import LayoutError
from tileworkbench.compiler.fast_dataclass import dataclass

from . import solve, text
from .digits import Shape, Term
from .maps import (
    DigitMap,
    Function,
    IndexMap,
    build_map,
    check_shape,
    compose,
    flatten,
    make_map,
    unflatten,
)

if TYPE_CHECKING:
    from .digits import Table

SWIZZLES = {128: 3, 64: 2, 32: 1}
"""The widths of `Layout.swizzled` in bytes, the widest first, with the bits that are XORed."""


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Layout:
    """A map from logical indices to physical indices, K^n -> K^m.

    ``Layout((128, 32), lambda i, j: (i // 8, j ^ i % 8))`` traces the function into mixed-radix
    digits where it can, and tabulates it otherwise (at most 2**18 points); both forms behave alike.
    Equal layouts are layouts of one shape that agree everywhere, however they were written.
    """

    mapping: IndexMap

    def __init__(self, shape: Sequence[int], function: Function) -> None:
        object.__setattr__(self, "mapping", build_map(shape, function))

    @classmethod
    def from_map(cls, mapping: IndexMap) -> Layout:
        """The layout of an index map."""
        layout = object.__new__(cls)
        object.__setattr__(layout, "mapping", mapping)
        return layout

    @classmethod
    def from_function(cls, shape: Sequence[int], function: Function) -> Layout:
        """The layout of `function`, which takes one index per dimension of `shape`.

        It may return one index, a tuple or a list. Output extents are the largest values plus one.

        Raises:
            LayoutError: negative or non-integer results, or a map that is neither digits nor
                small enough for a table.
        """
        return cls(shape, function)

    @classmethod
    def from_table(cls, values: Any) -> Layout:
        """The layout of an integer array ``(*shape, outputs)``."""
        import numpy as np

        table = np.array(values, dtype=np.int64)
        check_shape(table.shape)
        return cls.from_map(make_map(table.shape[:-1], table))

    @classmethod
    def identity(cls, shape: Sequence[int]) -> Layout:
        """Every index to itself."""
        return cls(shape, lambda *x: x)

    @classmethod
    def row_major(cls, shape: Sequence[int]) -> Layout:
        """Flat offsets, last dimension fastest."""
        box = check_shape(shape)
        return cls(box, lambda *x: flatten(box, x))

    @classmethod
    def column_major(cls, shape: Sequence[int]) -> Layout:
        """Flat offsets, first dimension fastest."""
        box = check_shape(shape)
        return cls(box, lambda *x: flatten(box[::-1], x[::-1]))

    @classmethod
    def padded(cls, shape: Sequence[int], pitch: int) -> Layout:
        """Row-major flat offsets with rows (the last dimension) `pitch` elements apart."""
        box = check_shape(shape)
        if pitch < box[-1]:
            raise LayoutError(f"A row of {box[-1]} elements does not fit a pitch of {pitch}.")
        return cls(box, lambda *x: flatten(box[:-1], x[:-1]) * pitch + x[-1])

    @classmethod
    def swizzled(cls, shape: Sequence[int], bits: int, width_bytes: int) -> Layout:
        """The bank-conflict-free shared-memory layout, as TMA and wgmma swizzle it.

        The last two dimensions are stored as chunks of columns `width_bytes` (32, 64 or 128) wide,
        each row-major; then bits 7.. of the byte offset are XORed into bits 4.. (1, 2 or 3 of
        them), so that 8 rows of 16 bytes at one column touch all banks. Dimensions in front pass
        through.
        `bits` is the width of an element. PTX ISA, "Tensor swizzling modes".
        """
        box = check_shape(shape)
        swizzle_bits = SWIZZLES.get(width_bytes)
        if swizzle_bits is None:
            raise LayoutError(f"A swizzle is 32, 64 or 128 bytes wide, not '{width_bytes}'.")
        if len(box) < 2 or bits not in (4, 8, 16, 32, 64, 128):
            raise LayoutError(f"Cannot swizzle '{box}' of {bits}-bit elements.")
        width, vector = width_bytes * 8 // bits, 128 // bits
        rows, columns = box[-2:]
        if columns % width:
            raise LayoutError(
                f"A {width_bytes}-byte swizzle of {bits}-bit elements takes rows of a multiple of "
                f"{width} elements, not {columns}.",
                hint="Use a narrower swizzle or a padded layout.",
            )

        def place(i: Any, j: Any) -> Any:
            plain = j // width * (rows * width) + i * width + j % width
            return plain ^ (plain // (8 * vector) % 2**swizzle_bits * vector)

        return cls((rows, columns), place).expand(box[:-2])

    @classmethod
    def panels(cls, shape: Sequence[int], dim: int, width: int, interleave: int = 1) -> Layout:
        """The packed operand of a CPU micro-kernel, as flat offsets.

        Dimension `dim` (N of B[K, N], M of A[M, K]) is cut in panels of `width`; a panel holds its
        elements for one index of the other dimension next to each other: B becomes
        ``[N/width][K][width]``. With `interleave` (2 or 4, for dot-product instructions on 16 and
        8 bits) that many consecutive indices of the other dimension are innermost:
        ``[N/width][K/interleave][width][interleave]``.
        """
        box = check_shape(shape)
        if len(box) != 2 or dim not in (0, 1) or width < 1 or interleave < 1:
            raise LayoutError(
                f"Cannot pack '{box}' along dimension {dim} in panels of {width} x {interleave}."
            )
        groups = -(-box[1 - dim] // interleave)

        def place(*x: Any) -> Any:
            n, k = x[dim], x[1 - dim]
            group = n // width * groups + k // interleave
            return (group * width + n % width) * interleave + k % interleave

        return cls(box, place)

    @property
    def shape(self) -> Shape:
        """Extents of the logical indices."""
        return self.mapping.shape

    @property
    def output_shape(self) -> Shape:
        """Extents of the physical indices: largest value plus one of each."""
        return self.mapping.output_shape

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of logical elements."""
        return prod(self.shape)

    @property
    def is_injective(self) -> bool:
        """Whether no two elements share a place."""
        return solve.is_injective(self.mapping)

    @property
    def is_bijective(self) -> bool:
        """Whether the elements fill the output box exactly."""
        return solve.is_bijective(self.mapping)

    @property
    def digits(self) -> tuple[tuple[Term, ...], ...] | None:
        """The terms of each output, or None when the layout is a table."""
        if isinstance(self.mapping, DigitMap):
            return tuple(total.terms for total in self.mapping.sums)
        return None

    def __call__(self, *index: int) -> tuple[int, ...]:
        """The physical index of an element."""
        return self.mapping.evaluate(self.check_index(index))

    def offset(self, *index: int) -> int:
        """The row-major position of the physical index in the output box."""
        return int(flatten(self.output_shape, self(*index)))

    def evaluate(self, *values: Any) -> tuple[Any, ...]:
        """The formula at `values`: arrays, or expressions with ``+ * // % ^``; unchecked."""
        return self.mapping.evaluate(values)

    def table(self, linear: bool = True) -> Table:
        """Physical positions of all elements, an int64 array.

        Row-major positions in the output box, of shape `shape`; or with ``linear=False`` the
        indices themselves, of shape ``(*shape, m)``.
        """
        return solve.linear_table(self.mapping) if linear else self.mapping.tabulate()

    def inverse(self) -> Layout:
        """Physical index to logical index.

        Raises:
            LayoutError: the layout is not bijective.
        """
        return Layout.from_map(solve.invert(self.mapping))

    def compose(self, inner: Layout) -> Layout:
        """``x -> self(inner(x))``, also written ``self @ inner``."""
        return Layout.from_map(compose(self.mapping, inner.mapping))

    __matmul__ = compose

    def repeat(self, dim: int, factor: int) -> Layout:
        """The layout laid `factor` times along `dim`; the copy's number becomes output 0."""
        self._check_dimension(dim, factor)
        extent = self.shape[dim]
        shape = (*self.shape[:dim], extent * factor, *self.shape[dim + 1 :])

        def place(*x: Any) -> tuple[Any, ...]:
            inner = (*x[:dim], x[dim] % extent, *x[dim + 1 :])
            return (x[dim] // extent, *self.mapping.evaluate(inner))

        return Layout(shape, place)

    def expand(self, dims: Sequence[int]) -> Layout:
        """New leading dimensions of extents `dims` (versions, batches) that pass through."""
        lead = len(dims)
        if not lead:
            return self
        return Layout(
            (*dims, *self.shape), lambda *x: (*x[:lead], *self.mapping.evaluate(x[lead:]))
        )

    def reshape(self, shape: Sequence[int]) -> Layout:
        """The same elements, in row-major order, under indices of another shape."""
        box = check_shape(shape)
        if prod(box) != self.size:
            raise LayoutError(f"Cannot reshape '{self.shape}' to '{box}': the sizes differ.")
        return Layout(box, lambda *x: self.mapping.evaluate(unflatten(self.shape, flatten(box, x))))

    def restrict(self, start: Sequence[int], shape: Sequence[int]) -> Layout:
        """The sub-box of `shape` at `start`, under indices from zero."""
        box = check_shape(shape)
        if (
            len(box) != self.rank
            or len(start) != self.rank
            or any(
                low < 0 or low + extent > bound
                for low, extent, bound in zip(start, box, self.shape, strict=True)
            )
        ):
            raise LayoutError(f"'{box}' at '{tuple(start)}' is not a box inside '{self.shape}'.")
        return Layout(
            box,
            lambda *x: self.mapping.evaluate([v + low for v, low in zip(x, start, strict=True)]),
        )

    def recast(self, old_bits: int, new_bits: int) -> Layout:
        """The same bytes as elements of another width, along the last dimension.

        Narrowing by ``f`` puts the parts of an element next to each other. Widening joins ``f``
        neighbours, which must be contiguous and aligned.

        Raises:
            LayoutError: the widths do not divide, or neighbours to be joined are apart.
        """
        if old_bits % new_bits == 0:
            factor = old_bits // new_bits

            def narrow(*x: Any) -> tuple[Any, ...]:
                outputs = self.mapping.evaluate((*x[:-1], x[-1] // factor))
                return (*outputs[:-1], outputs[-1] * factor + x[-1] % factor)

            return Layout((*self.shape[:-1], self.shape[-1] * factor), narrow)
        factor = new_bits // old_bits
        if new_bits % old_bits or self.shape[-1] % factor or self.vector_width(factor) < factor:
            raise LayoutError(
                f"Cannot view {old_bits}-bit elements of the layout as {new_bits} bits: groups of "
                f"{factor} neighbours are not contiguous and aligned."
            )

        def widen(*x: Any) -> tuple[Any, ...]:
            outputs = self.mapping.evaluate((*x[:-1], x[-1] * factor))
            return (*outputs[:-1], outputs[-1] // factor)

        return Layout((*self.shape[:-1], self.shape[-1] // factor), widen)

    def contiguity(self) -> int:
        """Largest ``n`` so that aligned groups of ``n`` along the last dimension are contiguous."""
        return solve.contiguous_run(self.mapping)[0]

    def vector_width(self, limit: int) -> int:
        """Elements, a power of two up to `limit`, that one aligned vector access can take."""
        run, alignment = solve.contiguous_run(self.mapping)
        width = 1
        while width * 2 <= limit and run % (width * 2) == 0 and alignment % (width * 2) == 0:
            width *= 2
        return width

    def check_index(self, index: Sequence[int]) -> Sequence[int]:
        """`index` itself, if it is inside the shape."""
        if len(index) != self.rank or any(
            not 0 <= value < extent for value, extent in zip(index, self.shape, strict=True)
        ):
            raise LayoutError(f"Index '{tuple(index)}' is outside the shape '{self.shape}'.")
        return index

    def _check_dimension(self, dim: int, factor: int) -> None:
        if not 0 <= dim < self.rank or factor < 1:
            raise LayoutError(f"Cannot repeat dimension {dim} of '{self.shape}' {factor} times.")

    def __str__(self) -> str:
        names = text.index_names(self.rank)
        head = f"({', '.join(names)}) -> "
        if not isinstance(self.mapping, DigitMap):
            return f"{head}table of {self.size} entries"
        outputs = [text.format_sum(self.shape, total, names) for total in self.mapping.sums]
        return head + (outputs[0] if len(outputs) == 1 else f"({', '.join(outputs)})")

    def to_text(self) -> str:
        """One line of Python-like text that `from_text` reads back to an equal layout."""
        return f"Layout({self.shape}, {text.format_map(self.mapping, text.index_names(self.rank))})"

    __repr__ = to_text

    @classmethod
    def from_text(cls, source: str) -> Layout:
        """The layout that `to_text` wrote; the text is parsed, not evaluated.

        Raises:
            LayoutError: the text is not of that form.
        """
        parsed = text.parse_map(source, "Layout")
        return cls.from_map(text.build_parsed(parsed, parsed.shape))
