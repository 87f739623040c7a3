"""Who accesses the tensors and the shared tiles of a kernel: what the copy engine has to itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from tileworkbench.compiler.analysis.effects import owners
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.effects import accesses
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import parameters, statements
from tileworkbench.compiler.ir.stmt import Kernel, Pointer, Stmt


@dataclass(frozen=True, slots=True)
class Uses:
    """The statements of one launch that read and write each buffer, or a view of it. `tensors` are
    those that the caller passes; where the kernel makes tensors of addresses, these may be any, and
    none is listed.
    """

    tensors: frozenset[Buffer] = frozenset()
    readers: Mapping[Buffer, tuple[Stmt, ...]] = field(default_factory=dict)
    writers: Mapping[Buffer, tuple[Stmt, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, program: Program, kernel: Kernel) -> Uses:
        """The uses in `kernel`."""
        views = owners(program.body)
        readers: dict[Buffer, list[Stmt]] = {}
        writers: dict[Buffer, list[Stmt]] = {}
        known = True
        for stmt in statements(kernel.body):
            known = known and not isinstance(stmt, Pointer)
            for access in accesses(stmt):
                buffer = views.get(access.buffer, access.buffer)
                if access.reads:
                    readers.setdefault(buffer, []).append(stmt)
                if access.writes:
                    writers.setdefault(buffer, []).append(stmt)
        return cls(
            frozenset(parameters(program) if known else ()),
            {buffer: tuple(stmts) for buffer, stmts in readers.items()},
            {buffer: tuple(stmts) for buffer, stmts in writers.items()},
        )
