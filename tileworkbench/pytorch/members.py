"""What groups of operations have in common that are their members and nothing else."""

from __future__ import annotations

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.pytorch.nodes import Node


@dataclass(frozen=True, slots=True)
class Members:
    """A group of operations, in order."""

    members: tuple[Node, ...]

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All operations of the kernel."""
        return self.members


@dataclass(frozen=True, slots=True)
class OneOperation(Members):
    """A group that begins with the operation it is about."""

    @property
    def node(self) -> Node:
        """The operation itself."""
        return self.members[0]

    @property
    def weight(self) -> int:
        """How many element-wise operations it stands for: always worth a kernel."""
        return 8
