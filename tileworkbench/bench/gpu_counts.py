"""What a warp does in one step of a kernel's main loop: as the time model counts it, and as the
instructions of a cubin say. `benchmarks/cost_model_gpu.py` lays the two side by side.

Instructions on indices, jumps and barriers are not the model's; matrix instructions are compared by
the operations they do, for a model knows no more of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from tileworkbench.bench.gpu_work import BlockWork, blocks_of, merged, step_of
from tileworkbench.compiler.device.nvidia.sass import Loop, kind_of
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.sim.threads.requests import WarpAccess

# Two operations of each element of m x n x k, by the numbers in an instruction's name. Those of a
# warpgroup are a quarter each of four warps.
_WARP = re.compile(r"[HIQ]MMA\.(16)(8)(\d+)\b")
_WARPGROUP = re.compile(r"[HIQ]GMMA\.(\d+)x(\d+)x(\d+)\b")
_MEMORY = re.compile(r"(LDS|LDSM|STS|STSM|LDG|LDGSTS|STG|RED|ATOM\w*)\b")
_SHUFFLE = "SHFL"
_ENGINES = ("wgmma", "TMA load", "TMA store")  # no instruction of each warp
KINDS = ("shared", "global", "shuffle", "special", "arithmetic")


@dataclass(frozen=True, slots=True)
class WarpCounts:
    """Operations of matrix instructions of a warp (FLOP), and its other instructions by `KINDS`;
    those on numbers, conversions too, are "arithmetic".
    """

    flops: float
    instructions: Mapping[str, float]


def cubin_counts(loop: Loop) -> WarpCounts:
    """The counts of one iteration of a loop of a cubin."""
    counted = dict.fromkeys(KINDS, 0.0)
    for each in loop.instructions:
        kind = kind_of(each)
        kind = {"float": "arithmetic", "convert": "arithmetic"}.get(kind, kind)
        moves = kind in ("shared", "global") and bool(_MEMORY.match(each))
        if moves or kind in ("special", "arithmetic") or each.startswith(_SHUFFLE):
            counted[kind] += 1
    return WarpCounts(sum(map(flops_of, loop.instructions)), counted)


def flops_of(instruction: str) -> float:
    """The operations that a matrix instruction does for one warp; 0 of any other."""
    for pattern, warps in ((_WARP, 1), (_WARPGROUP, 4)):
        if match := pattern.match(instruction):
            m, n, k = map(int, match.groups())
            return 2 * m * n * k / warps
    return 0.0


def model_counts(
    lowered: Program, requests: Iterable[WarpAccess], fast_math: bool = False
) -> WarpCounts:
    """The counts of a step of the main loop of a program of stage SIMT with one launch; of all of
    the program where no loop has matrix products.
    """
    (whole,) = blocks_of(lowered.body, fast_math)
    step = step_of(lowered.body, fast_math) or whole
    warps = step.threads / 32
    counted = dict.fromkeys(KINDS, 0.0)
    for (_, kind), spent in step.spent.items():
        counted["special"] += spent.special / step.threads
        counted["shuffle" if kind == "shuffle" else "arithmetic"] += spent.others / step.threads
    for access in requests:
        scope = access.count.scope
        if access.count.kind in _ENGINES or (scope, access.count.kind) == ("shared", "cp.async"):
            continue  # an asynchronous copy is listed for both of its memories
        times = _times(step, whole, access)
        counted[scope] += merged(access) * access.count.count * times / warps
    return WarpCounts(sum(step.products.values()) / warps, counted)


def _times(step: BlockWork, whole: BlockWork, access: WarpAccess) -> float:
    """How often the requests of an access are made in a step, which are those of the program with
    each loop taken once."""
    key = access.count.site, access.count.buffer
    once = whole.made.get(key, [0.0, 0.0])[1]
    return step.made.get(key, [0.0])[0] / once if once else 0.0
