"""The interface between the core of C-like languages and each single one of them.

The writers beside this file know expressions, loops, vectors in 32-bit words and names. Every word
that languages do not share comes from a `Dialect`; they import none.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.emit.c_like.helpers import Helper
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.expr import Load
from tileworkbench.compiler.ir.simt import NAMES, Exchange, Start
from tileworkbench.compiler.ir.stmt import AtomicKind, Kernel, SourceKernel, Stmt
from tileworkbench.compiler.ir.types import DType

if TYPE_CHECKING:
    from tileworkbench.compiler.emit.c_like.statements import KernelWriter


@dataclass(frozen=True, slots=True)
class Function:
    """One kernel as text: types and names of its parameters, the threads of a block and the bytes
    of the array `shared_memory` that they share (None where it has none), the lines of its body.
    """

    entry: str
    params: tuple[tuple[str, str], ...]
    threads: int
    shared_bytes: int | None
    lines: list[str]


class Dialect(ABC):
    """One C-like language on one machine.

    It has the types of C++, the functions of C's <math.h>, `min` and `max` of two ints, `printf`,
    and the helpers `f16_to_f32`, `f16_from_f32`, `bf16_from_f32`, `odd_f32` (float64 to float32,
    rounded to odd), `store4` (an element of four bits) and `philox`. `language` is its name in
    messages. Every text begins with `prelude`. `helpers` are the functions that texts may call;
    `bit_casts` those that read bits as another dtype, by both dtypes; `math` those of <math.h> that
    it calls otherwise, or has beside them. `picks` make a word of elements of 8 or 16 bits that
    lie some way apart in an array of words, where the language has functions for that.
    `small_half` makes a float32 of an integer by way of float16, given the least one there is,
    which has at most 1,023 behind it. Kernels cannot use the names in `words`, nor what `pattern`
    matches.
    """

    language: ClassVar[str]
    prelude: ClassVar[str] = ""
    restrict: ClassVar[str]
    thread_index: ClassVar[str]
    block_indices: ClassVar[tuple[str, str, str]]
    # The threads of a warp, and the text of a thread's warp as compilers know it to be the same in
    # all of them; empty where that is of no use.
    warp: ClassVar[tuple[int, str]] = (32, "")
    leader: ClassVar[str] = ""  # the helper that is true in one lane of a warp, as it likes
    trap: ClassVar[str]
    bit_casts: ClassVar[Mapping[tuple[str, str], str]]
    math: ClassVar[Mapping[str, str]]
    words: ClassVar[frozenset[str]]
    pattern: ClassVar[str]

    helpers: ClassVar[Mapping[str, Helper]]
    picks: ClassVar[Mapping[int, str]] = {}
    small_half: ClassVar[str | None] = None

    @property
    @abstractmethod
    def platform(self) -> str:
        """What the text is for, as its first line says."""

    @abstractmethod
    def check(self, helper: Helper) -> None:
        """Raise `UnsupportedError` where the machine has not what `helper` needs."""

    def tensor_map(self, writer: KernelWriter) -> str:
        """The type of a parameter that is a tensor map. Raises `UnsupportedError`."""
        raise self.missing("tensor_map")

    def elections(self, kernel: Kernel) -> Mapping[int, int]:
        """The branches, by `id`, for which a warp may elect any of its lanes, and that warp."""
        return {}

    # Text around the statements

    @abstractmethod
    def kernel(self, function: Function) -> str:
        """The definition of a kernel."""

    @abstractmethod
    def source_kernel(self, kernel: SourceKernel) -> str:
        """The text of a kernel that the user wrote. Raises `UnsupportedError`."""

    @abstractmethod
    def table(self, c_type: str, name: str, entries: str) -> str:
        """The definition of an array of 16 constants."""

    @abstractmethod
    def unroll(self, whole: bool) -> str:
        """The line above a loop that is unrolled, or is not; empty for none."""

    @abstractmethod
    def assume(self, condition: str) -> str:
        """The statement that lets the compiler take a condition for granted."""

    # Types and expressions

    @abstractmethod
    def vector_type(self, c_type: str, count: int) -> str:
        """The type of 2 or 4 elements with the members x, y, z, w."""

    @abstractmethod
    def vector(self, c_type: str, parts: list[str]) -> str:
        """A value of that type."""

    def pair(self, dtype: DType) -> str | None:
        """The helper that rounds two float32 to a word of `dtype`, where one instruction does."""
        return None

    @abstractmethod
    def intrinsic(self, name: str, args: list[str], dtype: DType) -> str | None:
        """A call of something else than a function of <math.h>; None for such a function, or where
        the language has nothing for it.
        """

    # What threads do together

    @abstractmethod
    def atomic(
        self, kind: AtomicKind, dtype: DType, place: str, value: str, writer: KernelWriter
    ) -> str:
        """An atomic update of one element as an expression, whose value is the old one."""

    @abstractmethod
    def vector_addition(self, dtype: DType, lanes: int, scope: str) -> tuple[str, Helper]:
        """The helper that adds to `lanes` neighbours: of the place and the 32-bit words."""

    def read(self, load: Load, kind: tuple[str, int], writer: KernelWriter) -> str | None:
        """A vector of memory of the type and the number of elements in `kind`, where the language
        reads it otherwise than by a pointer.
        """
        return None

    @abstractmethod
    def statement(self, stmt: Stmt, writer: KernelWriter) -> list[str]:
        """The lines of a statement of `ir/simt.py`. Raises `UnsupportedError`."""

    def start(self, stmt: Start, writer: KernelWriter, depth: int) -> None:
        """Write operations that an engine does later. Raises `UnsupportedError`."""
        raise self.missing(shown(stmt))

    def missing(self, what: str) -> UnsupportedError:
        """The error for a statement that the language cannot express."""
        return UnsupportedError(f"{self.language} has nothing for '{what}'")


def shown(stmt: Stmt) -> str:
    """What a statement of `ir/simt.py` is called in messages."""
    if isinstance(stmt, Exchange):
        return stmt.kind
    names = {kind: name for name, kind in NAMES.items()}
    return names.get(type(stmt), type(stmt).__name__)
