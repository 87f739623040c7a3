"""What is computed around one operation in its kernel: its operands, element by element, and what
follows from it. What is cheap and read by several kernels is computed in each of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from math import prod

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.pytorch import aten
from tileworkbench.pytorch.axes import Index
from tileworkbench.pytorch.elements import followed, is_element
from tileworkbench.pytorch.mapped import check_tensors, is_leaf
from tileworkbench.pytorch.nodes import Node, is_part, is_view, is_work, name_of, operands, shape_of
from tileworkbench.pytorch.shapes import Extents
from tileworkbench.pytorch.terms import NoRuleError

_MOST = 24  # operations of a kernel besides the one
_CHEAP = (
    *("aten.add.Tensor", "aten.sub.Tensor", "aten.mul.Tensor", "aten.neg.default"),
    *("aten.clone.default", "aten.constant_pad_nd.default", aten.CONVERSION, aten.EXPANSION),
)


@dataclass(frozen=True, slots=True)
class Around:
    """Operations on elements around the one `centre`; the last one is the result, and only that is
    read by others. What is `again` in it is computed elsewhere too.
    """

    members: tuple[Node, ...]
    centre: Node
    again: frozenset[Node] = frozenset()

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The operations that nothing else does, in order."""
        return tuple(each for each in self.members if each not in self.again)

    @property
    def domain(self) -> Extents:
        """The extents of its result."""
        return shape_of(self.members[-1])

    @property
    def weight(self) -> int:
        """How many element-wise operations it stands for."""
        return 2 + sum(map(is_work, self.members))

    def outputs(self) -> list[Node]:
        """What other operations read."""
        return [self.members[-1]]

    def operands_work(self) -> bool:
        """Whether something is computed of what the centre reads."""
        chain = set(chain_of(self.centre, ()))
        return any(is_work(each) for each in self.members if each not in chain)

    def followed_to_result(self, index: Index) -> Index:
        """The index in the result of what follows from the centre's element at `index`."""
        node = self.centre
        while node is not self.members[-1]:
            (user,) = readers(node)
            index = followed(node, user, index)
            node = user
        return index


def gathered(
    centre: Node, taken: Collection[Node], is_cheap: bool
) -> tuple[tuple[Node, ...], Node, frozenset[Node]]:
    """The fields of the group around an operation, without what is `taken` by others; `is_cheap`
    says that only cheap operations may be among its operands. Raises `NoRuleError`.
    """
    chain = chain_of(centre, taken)
    inside, again = set(chain), set[Node]()
    read = {each for node in chain for each in operands(node)} - inside
    node, count = chain[-1], 0
    while read and count < _MOST:
        node = node.prev  # users come first
        if node not in read:
            continue
        read.remove(node)
        if node.op != "call_function" or node in taken or not is_element(node) or is_leaf(node):
            continue
        others = any(user not in inside or user in again for user in node.users)
        if is_view(node) or name_of(node) in _CHEAP or not (others or is_cheap):
            inside.add(node)
            count += is_work(node)
            read.update(each for each in operands(node) if each not in inside)
            if others:
                again.add(node)
    members = tuple(each for each in centre.graph.nodes if each in inside)
    for each in members:
        check_tensors(each)
    return members, centre, frozenset(again)


def chain_of(centre: Node, taken: Collection[Node]) -> list[Node]:
    """An operation and what follows from it alone, element by element, up to the last work."""
    chain = [centre]
    while len(users := readers(chain[-1])) == 1:
        (user,) = users
        if user in taken or user.op != "call_function" or not is_element(user):
            break
        if prod(shape_of(user)) != prod(shape_of(centre)) or operands(user).count(chain[-1]) != 1:
            break
        chain.append(user)
    while not is_work(chain[-1]):
        chain.pop()
    return chain


def readers(node: Node) -> list[Node]:
    """What reads a node, without operations that another was written for: nobody reads those."""
    return [
        user
        for user in node.users
        if user.op != "call_function" or user.is_impure() or any(map(_is_read, (user, *user.users)))
    ]


def _is_read(node: Node) -> bool:
    return any(not is_part(user) for user in node.users)


def all_around(
    rules: Sequence[Callable[[Node, Collection[Node]], Around | None]],
    nodes: Sequence[Node],
    taken: Collection[Node],
    write: Callable[[Around, Mapping[Node, str]], object],
) -> list[Around]:
    """The groups that the rules find around nodes, without what is `taken`, and of which `write`
    can write a kernel. Work that others read from memory is done for those: no group does that
    again.
    """
    stored: set[Node] = set()
    known: dict[Around, bool] = {}

    def is_kernel(group: Around) -> bool:
        if group not in known:
            try:
                write(group, {})
                known[group] = True
            except NoRuleError:
                known[group] = False
        return known[group]

    while True:
        groups: list[Around] = []
        inside = set(taken)
        for rule in rules:
            for node in nodes:
                group = None if node in inside else rule(node, inside | stored)
                if group is not None and is_kernel(group):
                    groups.append(group)
                    inside.update(group.nodes)
        groups = _settled(groups, nodes)
        again = {node for each in groups for node in each.again if is_work(node)}
        if not again:
            return groups
        stored |= again


def _settled(groups: Sequence[Around], nodes: Sequence[Node]) -> list[Around]:
    """The groups, of which what is done again is only what others than these groups read too."""
    having: dict[Node, list[set[Node]]] = {}
    for group in groups:
        members = set(group.members)
        for node in members:
            having.setdefault(node, []).append(members)
    again = {node for each in groups for node in each.again}
    for node in reversed(nodes):
        if node in again and not any(_needs(user, node, having, again) for user in node.users):
            again.remove(node)
    return [replace(each, again=each.again & again) for each in groups]


def _needs(
    user: Node, node: Node, having: Mapping[Node, list[set[Node]]], again: Collection[Node]
) -> bool:
    """Whether somebody who computes `user` reads `node` from memory."""
    kernels = having.get(user, [])
    return not kernels or user in again or any(node not in members for members in kernels)
