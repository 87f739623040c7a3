"""Branches of formulas: groups that one other group reads, and nothing else does.

An operation joins the group of one of its operands. Where two branches meet, as in
`0.5 * x * (1 + tanh(f(x)))` or `rms_norm(x) * sigmoid(gate)`, the other one is a group of its own,
or too little for a kernel. But what it makes is only read by the group, so it is a part of that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod

from tileworkbench.pytorch.groups import Group, domain_of, plan
from tileworkbench.pytorch.nodes import Node, operands
from tileworkbench.pytorch.rules import AnyGroup, check_value, common
from tileworkbench.pytorch.terms import NoRuleError
from tileworkbench.pytorch.writing import written


def with_branches(
    groups: Mapping[int, AnyGroup],
    home: Mapping[Node, int],
    follows: Callable[[Group, int], bool],
) -> dict[int, AnyGroup]:
    """The groups by number, each with its branches. `home` has the numbers of operations;
    `follows` says whether a branch is computed from results of a group with a number.
    """
    made, now = dict(groups), dict(home)
    for number in groups:
        branch = made[number]
        if type(branch) is not Group or branch.product is not None:
            continue
        inside = set(branch.members)
        readers = {now.get(user) for node in inside for user in node.users if user not in inside}
        (reader,) = readers if len(readers) == 1 else (None,)
        if reader is None or follows(branch, reader):
            continue
        try:
            made[reader] = _together(branch, made[reader])
        except NoRuleError:
            continue
        del made[number]
        now.update(dict.fromkeys(branch.members, reader))
    return made


def _together(branch: Group, group: AnyGroup) -> Group:
    """A group with a branch of it. Raises `NoRuleError` where the kernel would have no form."""
    if type(group) is not Group or group.product is not None:
        raise NoRuleError("a kernel whose beginning is decided")
    if prod(branch.domain) != prod(group.domain):
        raise NoRuleError("another number of elements")
    if branch.inner and group.inner and branch.inner != group.inner:
        raise NoRuleError("reductions over rows of two lengths")
    members = (*branch.members, *group.members)
    domain = common(branch.domain, group.domain)
    whole = replace(group, members=members, domain=domain, inner=branch.inner or group.inner)
    for user in group.members:
        for node in operands(user):
            if node in branch.members:
                if node not in group.read_by(user):
                    raise NoRuleError("a table that rows are picked from")
                check_value(whole, node, domain_of(user))
    written(whole, plan(whole), {})
    return whole
