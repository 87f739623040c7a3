"""Mistakes at every place of a lowered matmul, attention and atomic additions are caught.

By a finding of the simulator, an error of the executed PTX, or a wrong result. The few that are
not are listed in `survivors.txt`, each with the reason; the list is exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.mutation.mutants import Mutant, ir_mutants, ptx_mutants
from tests.mutation.subjects import SUBJECTS, executed, ptx, simulated
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.stmt import Alloc

LISTED = Path(__file__).parent / "survivors.txt"


def listed(subject: str, form: str) -> Counter[str]:
    """The survivors that the file names, as "kind: statement", and how often."""
    lines = [line for line in LISTED.read_text().splitlines() if line and line[0] not in "#("]
    rows = [line.split(" | ") for line in lines]
    found = [row[2:] for row in rows if (row[0], row[1]) == (subject, form)]
    return Counter(": ".join(row) for row in found)


def survivors(mutants: Iterable[Mutant], caught: Callable[[Mutant], str | None]) -> Counter[str]:
    return Counter(
        f"{mutant.kind}: {mutant.place.partition(': ')[2]}"
        for mutant in mutants
        if caught(mutant) is None
    )


def check_ir(name: str) -> int:
    program = SUBJECTS[name]().threads
    assert simulated(name, program) is None
    mutants = list(ir_mutants(program))
    left = survivors(mutants, lambda mutant: simulated(name, mutant.program))
    assert left == listed(name, "ir")
    return len(mutants)


def check_ptx(name: str) -> int:
    text, _ = ptx(name)
    assert executed(name, text) is None
    mutants = list(ptx_mutants(text))
    left = survivors(mutants, lambda mutant: executed(name, str(mutant.program)))
    assert left == listed(name, "ptx")
    return len(mutants)


def test_mistakes_in_the_threads_of_a_matmul():
    assert check_ir("matmul") >= 70


def test_mistakes_with_a_tile_that_results_go_through():
    """Those behind the loop; the others are a matmul's."""
    program = SUBJECTS["staged"]().threads
    made = [isinstance(s, Alloc) and s.buffer.name == "C_tile" for s in statements(program.body)]
    behind = (m for m in ir_mutants(program) if int(m.place.partition(":")[0]) > made.index(True))
    mutants = list(behind)
    assert len(mutants) >= 5
    assert not survivors(mutants, lambda mutant: simulated("staged", mutant.program))


@pytest.mark.slow
def test_all_mistakes_where_results_go_through_a_tile():
    assert check_ir("staged") >= 80


@pytest.mark.slow
@pytest.mark.nvrtc
def test_mistakes_in_the_ptx_where_results_go_through_a_tile():
    assert check_ptx("staged") >= 50


def test_some_mistakes_with_the_copy_engine_and_warpgroups():
    """Every twelfth; the others are slow."""
    program = SUBJECTS["hopper matmul"]().threads
    assert simulated("hopper matmul", program) is None
    mutants = [*ir_mutants(program)][::12]
    left = survivors(mutants, lambda mutant: simulated("hopper matmul", mutant.program))
    assert len(mutants) >= 5 and left <= listed("hopper matmul", "ir")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "sites"), [("hopper matmul", 65), ("hopper attention", 155)])
def test_mistakes_in_the_threads_for_sm_90a(name, sites):
    assert check_ir(name) >= sites


@pytest.mark.slow
@pytest.mark.nvrtc
@pytest.mark.parametrize(("name", "sites"), [("hopper matmul", 55), ("hopper attention", 145)])
def test_mistakes_in_the_ptx_for_sm_90a(name, sites):
    assert check_ptx(name) >= sites


@pytest.mark.nvrtc
def test_mistakes_in_the_ptx_of_a_matmul():
    assert check_ptx("matmul") >= 35


def test_mistakes_in_the_threads_of_atomic_additions():
    assert check_ir("additions") >= 10


@pytest.mark.nvrtc
def test_mistakes_in_the_ptx_of_atomic_additions():
    assert check_ptx("additions") >= 20


@pytest.mark.slow
def test_mistakes_in_the_threads_of_attention():
    assert check_ir("attention") >= 110


@pytest.mark.slow
@pytest.mark.nvrtc
def test_mistakes_in_the_ptx_of_attention():
    assert check_ptx("attention") >= 100
