"""`Kernel.expect`: what must be true of a compiled kernel, as conditions a person can read.

A condition compares one fact with a number, ``conflicts == 0``, ``smem <= 48K``, or names an
instruction that the generated code must hold, ``mma.m16n8k16``; with ``not`` before it, must not.
"""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tileworkbench.compiler.diagnostics import ArgumentError, CheckError, UnsupportedError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.simt import Barrier
from tileworkbench.compiler.sim.report import AccessCount
from tileworkbench.viz.model.text import passes_changed

if TYPE_CHECKING:
    from tileworkbench.workbench.kernel import Kernel

_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}
_CONDITION = re.compile(r"\s*([a-z_]+)\s*(<=|>=|==|!=|<|>)\s*([0-9.e+-]+)\s*([KMGkmg%]?)\s*")
_INSTRUCTION = re.compile(r"\s*(not\s+|!)?([a-zA-Z]\w*(?:\.\w+)+|[a-zA-Z]\w*)\s*")
_UNITS = {"": 1.0, "K": 2.0**10, "M": 2.0**20, "G": 2.0**30, "%": 0.01}


@dataclass(frozen=True, slots=True)
class Outcome:
    """One condition, the value that was found (for an instruction: how often it stands in the code)
    and whether the condition holds.
    """

    condition: str
    value: float
    holds: bool

    def __str__(self) -> str:
        return f"{'ok' if self.holds else 'FAILED'}  {self.condition}  (is {self.value:g})"


def expect(kernel: Kernel, *conditions: str) -> tuple[Outcome, ...]:
    """The outcome of each condition.

    Raises:
        CheckError: a condition does not hold; all of them are listed.
        ArgumentError: a text is no condition, or a fact has no value for this kernel.
        UnsupportedError: registers and spills without NVRTC.
    """
    if not conditions:
        raise ArgumentError("nothing is expected", f"such as 'conflicts==0'; facts: {_known()}")
    outcomes = tuple(_outcome(kernel, condition) for condition in conditions)
    if not all(outcome.holds for outcome in outcomes):
        listed = "\n".join(f"  {outcome}" for outcome in outcomes)
        raise CheckError(f"'{kernel.name}' is not what was expected\n{listed}")
    return outcomes


def _outcome(kernel: Kernel, condition: str) -> Outcome:
    compared = _CONDITION.fullmatch(condition)
    if compared is None:
        return _instruction(kernel, condition)
    name, sign, number, unit = compared.groups()
    if name not in FACTS:
        near = difflib.get_close_matches(name, FACTS, 1)
        hint = f"did you mean '{near[0]}'?" if near else f"one of {_known()}"
        raise ArgumentError(f"'{name}' is no fact of a kernel", hint)
    try:
        wanted = float(number) * _UNITS[unit.upper()]
    except ValueError:
        raise ArgumentError(f"'{condition}': '{number}' is not a number") from None
    value = FACTS[name](kernel)
    if value != value:
        raise ArgumentError(f"'{name}' of '{kernel.name}' depends on symbolic shapes")
    return Outcome(condition, value, _COMPARE[sign](value, wanted))


def _instruction(kernel: Kernel, condition: str) -> Outcome:
    """Whether the code has an instruction whose name has these parts in this order."""
    asked = _INSTRUCTION.fullmatch(condition)
    if asked is None:
        hint = "such as 'conflicts==0', 'smem<=48K' or the instruction 'mma.m16n8k16'"
        raise ArgumentError(f"'{condition}' is not a condition", hint)
    absent, name = bool(asked.group(1)), asked.group(2)
    words = re.findall(r"[a-zA-Z_][\w.]*", kernel.source)
    count = sum(_has_parts(word.split("."), name.split(".")) for word in words)
    return Outcome(condition, float(count), (count == 0) == absent)


def _has_parts(word: list[str], parts: list[str]) -> bool:
    """Whether `word` begins with the first of `parts` and has the others in this order."""
    rest = iter(word)
    return word[0] == parts[0] and all(part in rest for part in parts)


def _shared(kernel: Kernel) -> list[AccessCount]:
    accesses = (access for access in kernel.accesses if isinstance(access, AccessCount))
    return [access for access in accesses if access.scope == "shared"]


def _conflicts(kernel: Kernel) -> float:
    _for_gpu(kernel, "conflicts")
    return float(sum(access.wavefronts - access.ideal for access in _shared(kernel)))


def _worst(kernel: Kernel) -> float:
    _for_gpu(kernel, "wavefronts")
    return max((access.factor for access in _shared(kernel)), default=1.0)


def _sectors(kernel: Kernel) -> float:
    _for_gpu(kernel, "sectors")
    counts = [a for a in kernel.accesses if isinstance(a, AccessCount) and a.scope != "shared"]
    return max((access.factor for access in counts), default=1.0)


def _barriers(kernel: Kernel) -> float:
    _for_gpu(kernel, "barriers")
    body = kernel.passes[-1].program.body
    return float(sum(isinstance(stmt, Barrier) for stmt in statements(body)))


def _registers(kernel: Kernel) -> float:
    _for_gpu(kernel, "registers")
    return float(max(each.registers for each in kernel.resources))


def _spills(kernel: Kernel) -> float:
    _for_gpu(kernel, "spills")
    return float(max(e.spill_store_bytes + e.spill_load_bytes for e in kernel.resources))


def _occupancy(kernel: Kernel) -> float:
    occupancy = kernel.occupancy
    if occupancy is None:
        raise UnsupportedError(f"the occupancy of target '{kernel.target}' is not known")
    return occupancy.fraction


def _for_gpu(kernel: Kernel, fact: str) -> None:
    if kernel.target.partition(":")[0] == "cpu":
        message = f"'{fact}' is a fact of GPU kernels, '{kernel.name}' is for '{kernel.target}'"
        raise UnsupportedError(message, hint="compile it for 'sim:sm_80', say")


FACTS: Mapping[str, Callable[[Kernel], float]] = {
    "conflicts": _conflicts,
    "wavefronts": _worst,
    "sectors": _sectors,
    "barriers": _barriers,
    "registers": _registers,
    "spills": _spills,
    "occupancy": _occupancy,
    "smem": lambda kernel: float(kernel.stats.shared_bytes),
    "threads": lambda kernel: float(kernel.threads),
    "flops": lambda kernel: kernel.stats.flops.value,
    "traffic": lambda kernel: kernel.stats.bytes_.value,
    "intensity": lambda kernel: kernel.stats.intensity,
    "passes": lambda kernel: float(passes_changed(kernel.record)[0]),
    "warnings": lambda kernel: float(len(kernel.warnings)),
    "variants": lambda kernel: float(len(kernel.variants)),
}
"""What conditions may name. Of GPU kernels alone: `conflicts` (wavefronts of shared memory beyond
the fewest possible, of all accesses together), `wavefronts` and `sectors` (used over needed, of the
worst access), `barriers` (written in the code), `registers` and `spills` (bytes; of a thread, from
NVRTC), `occupancy` (0 to 1, or percent). Of all: `smem` (bytes of a block), `threads`, `flops`,
`traffic` (bytes), `intensity` (FLOP per byte), `passes` (that changed something), `warnings`,
`variants`."""


def _known() -> str:
    return ", ".join(FACTS)
