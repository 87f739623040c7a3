"""Which instructions the elements of a tile are made for: the part that each takes, an atom."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from tileworkbench.compiler.diagnostics import LayoutError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.simt import (
    MATRIX_ROW_BITS,
    MATRIX_ROWS,
    LoadMatrix,
    Mma,
    StoreMatrix,
)
from tileworkbench.compiler.layout import Fragment, Layout
from tileworkbench.compiler.layout.atoms import transposed
from tileworkbench.compiler.machine.operands import instruction_names, operand_fragment
from tileworkbench.compiler.machine.tables import ARCHITECTURES, machine_of

_MOST = 3  # atoms that are named of a fragment without a kernel


@dataclass(frozen=True, slots=True)
class Atom:
    """One instruction's part of a tile: `rows` x `columns` elements, which repeat from (0, 0) on.

    `threads` and `slots` are what holds it in registers, 0 for a tile in shared memory. `source` is
    the document that says so, where the row of the instruction names one.
    """

    name: str
    rows: int
    columns: int
    threads: int = 0
    slots: int = 0
    source: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The atom as plain data."""
        return {
            "name": self.name,
            "rows": self.rows,
            "columns": self.columns,
            "threads": self.threads,
            "slots": self.slots,
            "source": self.source,
        }


def tiles(fragment: Fragment, atom: Fragment) -> bool:
    """Whether the last two dimensions of a fragment are copies of `atom` side by side, each moved
    by whole groups of its threads and by a number of slots.
    """
    if fragment.rank < 2 or atom.rank != 2:
        return False
    (rows, columns), (high, wide) = fragment.shape[-2:], atom.shape
    if rows % high or columns % wide or fragment.threads % atom.threads:
        return False
    threads, slots = fragment.table()
    lead = (0,) * (fragment.rank - 2)
    box = (rows // high, high, columns // wide, wide)
    atom_threads, atom_slots = atom.table()
    moved = threads[..., 0][lead].reshape(box) - atom_threads[None, :, None, :, 0]
    further = slots[lead].reshape(box) - atom_slots[None, :, None, :]
    first = (slice(None), slice(1), slice(None), slice(1))
    return bool(
        (moved == moved[first]).all()
        and (moved[first] % atom.threads == 0).all()
        and (further == further[first]).all()
    )


def find_atoms(
    programs: Sequence[Program], layouts: Mapping[str, Layout | Fragment], arch: str
) -> dict[str, tuple[Atom, ...]]:
    """The atoms of tiles by name, from the instructions of the first program that has any: of a
    kernel that was lowered to the threads of `arch`. Code holds a fragment's registers under its
    name.
    """
    by_buffer: dict[str, dict[Atom, None]] = {}
    for program in programs:
        for name, atom in _atoms_in(program, layouts, arch):
            by_buffer.setdefault(name, {})[atom] = None
        if by_buffer:
            break
    return {name: tuple(atoms) for name, atoms in by_buffer.items()}


def _atoms_in(
    program: Program, layouts: Mapping[str, Layout | Fragment], arch: str
) -> Iterator[tuple[str, Atom]]:
    for stmt in statements(program.body):
        if isinstance(stmt, Mma):
            yield from _mma_atoms(stmt, layouts, arch)
        elif isinstance(stmt, LoadMatrix):
            yield stmt.src.buffer.name, _matrix("ld", stmt, stmt.src.buffer)
        elif isinstance(stmt, StoreMatrix):
            yield stmt.dst.buffer.name, _matrix("st", stmt, stmt.dst.buffer)


def _matrix(prefix: str, stmt: LoadMatrix | StoreMatrix, buffer: Buffer) -> Atom:
    ending = ".trans" if stmt.transpose else ""
    name = f"{prefix}matrix.x{stmt.count}{ending}: one matrix"
    return Atom(name, MATRIX_ROWS, MATRIX_ROW_BITS // buffer.dtype.bits)


def _mma_atoms(
    stmt: Mma, layouts: Mapping[str, Layout | Fragment], arch: str
) -> Iterator[tuple[str, Atom]]:
    called, fragments, source = _instruction(stmt, arch)
    operands = (stmt.a, stmt.b, stmt.c)
    parts = (
        (operand, address.buffer.name, fragment)
        for operand, address, fragment in zip("ABC", operands, fragments, strict=False)
    )
    for operand, name, fragment in parts:
        held = layouts.get(name)
        if not isinstance(held, Fragment):
            continue  # registers that are filled for this product alone
        either = (fragment, transposed(fragment))
        fitting = next((each for each in either if tiles(held, each)), None)
        if fitting is not None:
            yield name, _atom(f"{called} {operand}", fitting, source)


def _instruction(stmt: Mma, arch: str) -> tuple[str, tuple[Fragment, ...], str]:
    """The name of a product's instruction, where A, B and C are, and what says so."""
    name = f"m{stmt.m}n{stmt.n}k{stmt.k}"
    row = machine_of(arch).matrix(stmt.shape, stmt.dtypes) if arch in ARCHITECTURES else None
    if row is None:  # code that a user has edited
        return name, (), ""
    count = row.issues * row.across
    several = f" ({count} instructions)" if count > 1 else ""
    fragments = (row.a.fragment, row.b.fragment, row.c.fragment)
    return f"{row.name.removesuffix('.sync')}.{name}{several}", fragments, row.source


def _atom(name: str, fragment: Fragment, source: str = "") -> Atom:
    rows, columns = fragment.shape
    return Atom(name, rows, columns, fragment.threads, fragment.slots, source)


def fragment_atoms(fragment: Fragment) -> tuple[Atom, ...]:
    """The instructions whose operands a fragment without a kernel is made of, the largest of each
    kind.
    """
    atoms: dict[tuple[str, str], Atom] = {}
    for name, operand, each in _operands():
        kind = (name.partition(".")[0], operand)
        size = atoms[kind].rows * atoms[kind].columns if kind in atoms else 0
        if each.size > size and tiles(fragment, each):
            atoms[kind] = _atom(f"{name} {operand}".rstrip(), each)
    return tuple(sorted(atoms.values(), key=lambda atom: -atom.rows * atom.columns)[:_MOST])


@cache
def _operands() -> tuple[tuple[str, str, Fragment], ...]:
    """Instruction, operand and fragment of all that tables have in registers; of equal fragments
    of one family the first.
    """
    operands: dict[tuple[str, str, Fragment], tuple[str, str, Fragment]] = {}
    for name in instruction_names():
        family = name.partition(".")[0]
        if family.endswith("matrix"):
            continue  # a matrix of them is operand B of mma.m16n8k8
        for operand in "ABC":
            try:
                fragment = operand_fragment(f"{name} {operand}")
            except LayoutError:
                continue  # in shared memory only
            operands.setdefault((family, operand, fragment), (name, operand, fragment))
    return tuple(operands.values())
