"""`Fragment`: which thread holds an element in which register (paper, section 4.1, Figure 6)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from tileworkbench.compiler.diagnostics import LayoutError
from tileworkbench.compiler.fast_dataclass import dataclass

from . import solve, text
from .digits import NotDigitsError, Shape
from .layout import Layout
from .maps import (
    DigitMap,
    Function,
    IndexMap,
    build_map,
    check_shape,
    flatten,
    make_map,
)

if TYPE_CHECKING:
    from .digits import Table


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Fragment:
    """A map from an index and a replica to (thread, slot): a buffer spread over registers.

    ``Fragment((4, 4), lambda i, j: (2 * i + j // 2, j % 2))``. With ``replicate=R`` the function
    takes the replica ``0 <= rep < R`` as a further argument: each element then lives in R threads,
    at one slot. Threads count from 0 within `thread_range` where one is bound. The map is kept over
    ``(*shape, R)``; equality is equality of functions on equal shapes.

    Raises:
        LayoutError: the slot depends on the replica, or as for `Layout`.
    """

    mapping: IndexMap
    thread_range: tuple[int, int] | None
    """First thread and number of threads of the block that the fragment is bound to."""

    def __init__(
        self,
        shape: Sequence[int],
        function: Function,
        replicate: int = 1,
        thread_range: tuple[int, int] | None = None,
    ) -> None:
        box = check_shape((*check_shape(shape), replicate))
        mapping = build_map(box, function if replicate > 1 else lambda *x: function(*x[:-1]))
        _set_fields(self, mapping, thread_range)

    @classmethod
    def from_map(cls, mapping: IndexMap, thread_range: tuple[int, int] | None = None) -> Fragment:
        """The fragment of a map ``(*index, replica) -> (thread, slot)``."""
        fragment = object.__new__(cls)
        _set_fields(fragment, mapping, thread_range)
        return fragment

    @classmethod
    def from_function(
        cls,
        shape: Sequence[int],
        thread_function: Function,
        slot_function: Function | None = None,
        replicate: int = 1,
    ) -> Fragment:
        """The fragment of a thread function and a slot function.

        With ``replicate > 1`` the thread function takes the replica as its last argument; the slot
        function never does. A tuple of slots is flattened row-major. Without a slot function, the
        slot is the row-major position among the index digits that the thread does not depend on.
        """
        box = check_shape((*check_shape(shape), replicate))
        threads = build_map(
            box, thread_function if replicate > 1 else lambda *x: thread_function(*x[:-1])
        )
        if len(threads.output_shape) != 1:
            raise LayoutError("A fragment's thread function must return one thread.")
        if slot_function is None:
            return cls._from_threads(threads)
        slots = build_map(box, lambda *x: slot_function(*x[:-1]))
        return cls._join(threads, slots)

    @classmethod
    def _from_threads(cls, threads: IndexMap) -> Fragment:
        """The fragment of a thread map, with the default slot."""
        return cls._join(threads, solve.unused_position(threads, range(len(threads.shape) - 1)))

    @classmethod
    def _join(cls, threads: IndexMap, slots: IndexMap) -> Fragment:
        def place(*x: Any) -> tuple[Any, Any]:
            return threads.evaluate(x)[0], flatten(slots.output_shape, slots.evaluate(x))

        return cls.from_map(build_map(threads.shape, place))

    @classmethod
    def fully_replicated(cls, shape: Sequence[int], threads: int) -> Fragment:
        """Every one of `threads` threads holds every element, row-major."""
        box = check_shape(shape)
        return cls.from_map(build_map((*box, threads), lambda *x: (x[-1], flatten(box, x[:-1]))))

    @property
    def shape(self) -> Shape:
        """Extents of the index."""
        return self.mapping.shape[:-1]

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements, copies not counted."""
        return prod(self.shape)

    @property
    def replicate(self) -> int:
        """Number of replicas R."""
        return self.mapping.shape[-1]

    @property
    def threads(self) -> int:
        """Thread extent: the highest thread plus one."""
        return self.mapping.output_shape[0]

    @property
    def slots(self) -> int:
        """Registers (elements) per thread."""
        return self.mapping.output_shape[1]

    @property
    def is_injective(self) -> bool:
        """Whether no two (index, replica) pairs share a thread and slot."""
        return solve.is_injective(self.mapping)

    @property
    def is_bijective(self) -> bool:
        """Whether besides every slot of every thread is used."""
        return solve.is_bijective(self.mapping)

    @property
    def is_fully_replicated(self) -> bool:
        """Whether the thread is the replica, whatever the index."""
        return self.threads == self.replicate and self == Fragment.from_map(
            build_map(self.mapping.shape, lambda *x: (x[-1], self.mapping.evaluate(x)[1])),
            self.thread_range,
        )

    def thread_of(self, *index: int, rep: int = 0) -> int:
        """The thread that holds replica `rep` of an element."""
        return int(self.mapping.evaluate(self._point(index, rep))[0])

    def slot_of(self, *index: int) -> int:
        """The slot of an element, in every thread that holds it."""
        return int(self.mapping.evaluate(self._point(index, 0))[1])

    def elements_of(self, thread: int) -> Table:
        """The index held in each slot of a thread: int64 ``(slots, rank)``, -1 where empty."""
        import numpy as np

        threads, slots = self.table()
        held = np.full((self.slots, self.rank), -1, np.int64)
        positions = np.argwhere((threads == thread).any(-1))
        held[slots[tuple(positions.T)]] = positions
        return held

    def table(self) -> tuple[Table, Table]:
        """Threads, int64 ``(*shape, R)``, and slots, int64 ``shape``, of all elements."""
        values = self.mapping.tabulate()
        return values[..., 0], values[..., 0, 1]

    def evaluate(self, *values: Any) -> tuple[Any, Any]:
        """(thread, slot) by formula at ``(*index, replica)``: arrays or expressions; unchecked."""
        thread, slot = self.mapping.evaluate(values)
        return thread, slot

    def repeat(
        self, repeats: Sequence[int], on_thread: bool = False, lower_dim_first: bool = True
    ) -> Fragment:
        """The fragment laid ``repeats[d]`` times along each dimension.

        Copies count with the last dimension fastest (with ``lower_dim_first=False``, the first).
        Copy ``G`` is ``slots * G`` slots further, or with `on_thread` ``threads * G`` threads.
        """
        if len(repeats) != self.rank or any(factor < 1 for factor in repeats):
            raise LayoutError(f"Cannot repeat a fragment of '{self.shape}' by '{tuple(repeats)}'.")
        old, rank = self.shape, self.rank
        order = list(range(rank)) if lower_dim_first else list(reversed(range(rank)))

        def place(*x: Any) -> tuple[Any, Any]:
            groups = [x[d] // old[d] for d in order]
            group = flatten(tuple(repeats[d] for d in order), groups)
            inner = [x[d] % old[d] for d in range(rank)]
            thread, slot = self.mapping.evaluate((*inner, x[rank]))
            if on_thread:
                return thread + group * self.threads, slot
            return thread, slot + group * self.slots

        shape = [extent * factor for extent, factor in zip(old, repeats, strict=True)]
        return self._derive(shape, self.replicate, place)

    def repeat_on_thread(self, repeats: Sequence[int], lower_dim_first: bool = True) -> Fragment:
        """`repeat` over further threads."""
        return self.repeat(repeats, on_thread=True, lower_dim_first=lower_dim_first)

    def replicated(self, copies: int) -> Fragment:
        """The fragment copied to `copies` groups of threads, `threads` apart (paper: replicate)."""
        old = self.replicate

        def place(*x: Any) -> tuple[Any, Any]:
            thread, slot = self.mapping.evaluate((*x[:-1], x[-1] % old))
            return thread + x[-1] // old * self.threads, slot

        return self._derive(self.shape, old * copies, place)

    def condense(self) -> Fragment:
        """Drop the digits of the replica that the thread does not depend on."""
        if isinstance(self.mapping, DigitMap):
            try:
                return self._condense_digits(self.mapping)
            except NotDigitsError:
                pass
        import numpy as np

        values = self.mapping.tabulate()
        columns = values.reshape(-1, self.replicate, 2)
        _, first, counts = np.unique(columns, axis=1, return_index=True, return_counts=True)
        if len(set(counts.tolist())) != 1:
            return self
        kept = values[..., np.sort(first), :].copy()
        return Fragment.from_map(make_map((*self.shape, len(first)), kept), self.thread_range)

    def _condense_digits(self, mapping: DigitMap) -> Fragment:
        system = solve.refine(DigitMap(mapping.shape, mapping.sums[:1]))
        kept = [
            atom
            for number, atom in enumerate(system.atoms)
            if atom.dim == self.rank and system.used >> number & 1
        ]

        def place(*x: Any) -> tuple[Any, ...]:
            rest, rep = x[-1], 0
            for atom in kept:
                rep = rest % atom.extent * atom.divisor + rep
                rest = rest // atom.extent
            return mapping.evaluate((*x[:-1], rep))

        return self._derive(self.shape, prod(atom.extent for atom in kept), place)

    def inverse(self) -> Layout:
        """``(slot, thread) -> (*index, replica)``.

        Raises:
            LayoutError: some slot is empty or holds more than one element.
        """
        swapped = build_map(self.mapping.shape, lambda *x: self.mapping.evaluate(x)[::-1])
        return Layout.from_map(solve.invert(swapped))

    def compose(self, access: Layout) -> Fragment:
        """The fragment of a loop that touches element ``access(loop index)`` of this one.

        Also written ``fragment @ access``. Iterations that touch one element share its slot.
        """
        lead = Layout.from_map(
            build_map(
                (*access.shape, self.replicate), lambda *x: (*access.evaluate(*x[:-1]), x[-1])
            )
        )
        return Fragment.from_map((Layout.from_map(self.mapping) @ lead).mapping, self.thread_range)

    __matmul__ = compose

    def project(self, access: Layout) -> Fragment:
        """The fragment of a buffer that this loop reads at ``access(loop index)`` (Figure 7).

        Loop digits that the access does not use become replica digits if the thread depends on
        them, and vanish if only the slot does. The slot is the row-major position among the
        buffer's digits that the thread does not depend on.

        Raises:
            LayoutError: the access and the digits it does not use do not determine the iteration
                (such a buffer can be fully replicated instead).
        """
        if access.shape != self.shape:
            raise LayoutError(
                f"An access over '{access.shape}' does not fit the fragment's shape '{self.shape}'."
            )
        unused = solve.unused_position(access.mapping, range(self.rank))
        joint = build_map(self.shape, lambda *x: (*access.mapping.evaluate(x), *unused.evaluate(x)))
        iteration = solve.invert(joint)
        copies = unused.output_shape[0]

        def place(*x: Any) -> tuple[Any, int]:
            loop = iteration.evaluate((*x[:-1], x[-1] % copies))
            return self.mapping.evaluate((*loop, x[-1] // copies))[0], 0

        box = (*access.output_shape, copies * self.replicate)
        spread = Fragment.from_map(build_map(box, place)).condense().mapping
        threads = build_map(spread.shape, lambda *x: spread.evaluate(x)[0])
        return Fragment.from_map(Fragment._from_threads(threads).mapping, self.thread_range)

    def bind_thread_range(self, start: int, extent: int) -> Fragment:
        """The fragment bound to threads ``start .. start + extent - 1`` of its block."""
        return Fragment.from_map(self.mapping, (start, extent))

    def _derive(self, shape: Sequence[int], replicate: int, function: Function) -> Fragment:
        return Fragment.from_map(build_map((*shape, replicate), function), self.thread_range)

    def _point(self, index: Sequence[int], rep: int) -> tuple[int, ...]:
        point = (*index, rep)
        if len(point) != self.rank + 1 or any(
            not 0 <= value < extent for value, extent in zip(point, self.mapping.shape, strict=True)
        ):
            raise LayoutError(
                f"Index '{tuple(index)}' of replica {rep} is outside the shape '{self.shape}' with "
                f"{self.replicate} replicas."
            )
        return point

    def _names(self) -> tuple[str, ...]:
        return (*text.index_names(self.rank), "rep")

    def __str__(self) -> str:
        names = self._names() if self.replicate > 1 else self._names()[:-1]
        head = f"({', '.join(names)}) -> "
        if not isinstance(self.mapping, DigitMap):
            return f"{head}table of {self.size * self.replicate} entries"
        thread, slot = self.mapping.sums
        return (
            f"{head}thread {text.format_sum(self.mapping.shape, thread, self._names())}, "
            f"slot {text.format_sum(self.mapping.shape, slot, self._names())}"
        )

    def to_text(self) -> str:
        """One line of Python-like text that `from_text` reads back to an equal fragment."""
        names = self._names() if self.replicate > 1 else self._names()[:-1]
        parts = [str(self.shape), text.format_map(self.mapping, names)]
        if self.replicate > 1:
            parts.append(f"replicate={self.replicate}")
        if self.thread_range:
            parts.append(f"thread_range={self.thread_range}")
        return f"Fragment({', '.join(parts)})"

    __repr__ = to_text

    @classmethod
    def from_text(cls, source: str) -> Fragment:
        """The fragment that `to_text` wrote; the text is parsed, not evaluated.

        Raises:
            LayoutError: the text is not of that form.
        """
        parsed = text.parse_map(source, "Fragment", ("replicate", "thread_range"))
        replicate = parsed.keywords.get("replicate", 1)
        bound = parsed.keywords.get("thread_range")
        if parsed.function is not None:
            return cls(parsed.shape, parsed.function, replicate, bound)
        box = (*check_shape(parsed.shape), replicate)
        return cls.from_map(text.build_parsed(parsed, box), bound)


def _set_fields(
    fragment: Fragment, mapping: IndexMap, thread_range: tuple[int, int] | None
) -> None:
    """Check and store the fields of a new fragment."""
    if len(mapping.output_shape) != 2:
        raise LayoutError("A fragment's function must return a thread and a slot.")
    if _slot_varies(mapping):
        raise LayoutError("The slot of a fragment must not depend on the replica.")
    if thread_range is not None:
        _check_thread_range(thread_range, mapping.output_shape[0])
    object.__setattr__(fragment, "mapping", mapping)
    object.__setattr__(fragment, "thread_range", thread_range)


def _slot_varies(mapping: IndexMap) -> bool:
    """Whether the slot depends on the replica."""
    last = len(mapping.shape) - 1
    if isinstance(mapping, DigitMap):
        return any(digit.dim == last for term in mapping.sums[1].terms for digit in term.digits)
    slots = mapping.values[..., 1]
    return bool((slots != slots[..., :1]).any())


def _check_thread_range(thread_range: object, threads: int) -> None:
    """Refuse a `thread_range` that is not two integers with room for `threads` threads."""
    if not (
        isinstance(thread_range, tuple)
        and len(thread_range) == 2
        and all(isinstance(bound, int) for bound in thread_range)
    ):
        raise LayoutError(
            f"A thread range is a first thread and a number of threads, not '{thread_range}'."
        )
    start, extent = thread_range
    if start < 0 or extent < threads:
        raise LayoutError(
            f"A fragment of {threads} threads does not fit {extent} threads from {start}."
        )
