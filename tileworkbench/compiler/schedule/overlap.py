"""Products that go on while the threads work on the next iteration of a loop.

In the kernel, a loop's last product ends its iteration: nothing is left that it could overlap with.
So it is started one iteration later, behind the start of the product before it there, and waited
for in front of the first statement that touches what it uses. What lies between, in attention the
softmax, is done while it is under way (Shah et al., FlashAttention-3, arXiv 2407.08608).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tileworkbench.compiler.analysis.dataflow import effects_of
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.rewrite import variables
from tileworkbench.compiler.ir.simt import CommitGroup, Engine, Start, WaitGroup
from tileworkbench.compiler.ir.stmt import Let, Stmt, declares, seq


@dataclass(frozen=True, slots=True)
class Overlap:
    """Places among the statements of a loop. `last` starts the loop's last product, and `end`
    waited for it in the kernel. `before` starts the product in front of it, and `joined` waits for
    that one. `needed` is the first statement that needs the last product to be done.
    """

    before: int
    joined: int
    needed: int
    last: int
    end: int


class Apart(Exception):
    """Why a loop's products overlap with nothing, as the end of a sentence."""


def overlap_of(stmts: Sequence[Stmt], versions: Mapping[Buffer, int]) -> Overlap | None:
    """How the last product of a loop runs beside the next iteration, None where there is nothing to
    overlap with. `versions`: of each tile that somebody else fills. Raises `Apart`.
    """
    batches = list(_batches(stmts))
    if len(batches) < 2:
        return None
    (before, joined), (last, end) = batches[-2:]
    if not all(declares(stmt) for stmt in stmts[end + 1 :]):
        raise Apart("statements of the loop follow the last of them")
    product = effects_of(seq([*lets_of(stmts, last), stmts[last]]))
    if any(versions.get(buffer, 2) < 2 for buffer in product.reads):
        raise Apart("their tiles have one version")
    for stmt in stmts[: joined + 1]:
        both = product.conflicts(effects_of(stmt))
        if both is not None and both not in versions:
            raise Apart(f"'{both.name}' is used by both")
    written = {buffer for stmt in stmts for buffer in effects_of(stmt).writes}
    foreign = [b.name for b in product.reads & written if b.scope == "shared"]
    if foreign:
        raise Apart(f"threads write '{min(foreign)}' in shared memory")
    touching = (
        at for at in range(joined + 1, last) if product.conflicts(effects_of(stmts[at])) is not None
    )
    needed = next(touching, last)
    if all(declares(stmt) for stmt in stmts[joined + 1 : needed]):
        return None
    return Overlap(before, joined, needed, last, end)


def lets_of(stmts: Sequence[Stmt], at: int) -> list[Stmt]:
    """The scalars of the iteration that a statement uses, in order."""
    wanted = set(variables(stmts[at]))
    lets: list[Stmt] = []
    for stmt in reversed(stmts[:at]):
        if isinstance(stmt, Let) and stmt.var in wanted:
            wanted |= set(variables(stmt.value))
            lets.append(stmt)
    return lets[::-1]


def _batches(stmts: Sequence[Stmt]) -> Iterator[tuple[int, int]]:
    """(start, wait) of the products that are waited for where they are started."""
    for at in range(len(stmts) - 2):
        match stmts[at : at + 3]:
            case [
                Start(engine=Engine.WGMMA),
                CommitGroup(Engine.WGMMA),
                WaitGroup(0, Engine.WGMMA),
            ]:
                yield at, at + 2
