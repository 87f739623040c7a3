"""Every error message that a user may read stands as text in some test."""

from __future__ import annotations

import fnmatch
from functools import cache

from tests.architecture.raises import Pattern, Site, describe, sites, uncovered

# Places that pass on the text of another error, with what it is about in front; by `path:function`.
PASSED_ON = {
    "api.py:_arguments": "what Python says about arguments",
    "compiler/frontend/eager.py:_values": "what Python says about arguments",
    "compiler/frontend/eager.py:_given": "what Python says about arguments",
    "compiler/diagnostics.py:failed_assertion": "the message of T.device_assert",
    "compiler/lower/threads/conflicts.py:describe_failure": "what an operator says about layouts",
    "compiler/lower/threads/solver.py:_apply": "what a layout says about threads",
    "compiler/runtime/checks.py:view": "what runtime/arrays.py says about a tensor",
    "workbench/simulation.py:_check_contents": "what runtime/arrays.py says about a tensor",
    "compiler/sim/statements.py:check": "the message of T.device_assert",
    "editing/ir.py:_broken_by_edit": "what a pass or LLVM says of the program that it got",
    "isolation/process.py:_ask": "how another process ended, or what it raised",
    "shipping/shipped/host.py:launch": "what the library says, from texts of shipping/host.py",
    "tuning/autotune.py:_given": "what Python says about arguments",
    "viz/display.py:show": "what a widget says about a pass or a buffer",
    "viz/magics/cell.py:_evaluate": "what Python says about an expression",
    "viz/magics/cell.py:_save": "what the system says about a file",
    "viz/magics/commands.py:_value": "what Python says about an expression",
    "viz/magics/grammar.py:error": "what argparse says about a line",
    "viz/magics/magic.py:_parsed": "what viz/magics/grammar.py says about a line",
    "viz/magics/puzzles.py:_task": "what puzzles/task.py says about a number",
    "viz/model/typed_layout.py:_evaluate": "what Python or a layout says about an expression",
    "viz/model/typed_layout.py:_placed": "what machine/operands.py says about a name",
}
# Places that no kernel and no call reaches.
_LOWERED = "the passes leave no such node"
_TRIED = "the inference tries another layout"
INTERNAL = {
    "compiler/emit/llvm/stores.py:last_lane": _LOWERED,
    "compiler/ir/parser_expressions.py:fail": "the IR's own text; tests/ir holds samples",
    "compiler/lower/threads/binding.py:_project": _TRIED,
    "compiler/lower/threads/iterations.py:register_of": "every fragment has a layout by then",
    "compiler/lower/threads/iterations.py:slot": "the inference refuses it",
    "compiler/lower/threads/partition.py:partition": _TRIED,
    "compiler/lower/threads/reducer.py:finish": "the loop that contributes is refused first",
    "compiler/sim/ptx/bulk.py:_find_map": "a launch passes every map that its kernel takes",
    "compiler/sim/threads/matrix.py:uniform_index": _LOWERED,
    "compiler/sim/threads/plan.py:physical_bytes": "tiles have constant extents",
}
ALLOWED = PASSED_ON | INTERNAL


@cache
def missing() -> list[tuple[Site, Pattern]]:
    return uncovered()


def test_every_message_stands_in_a_test() -> None:
    found = [
        describe(site, pattern)
        for site, pattern in missing()
        if not any(fnmatch.fnmatchcase(site.key, allowed) for allowed in ALLOWED)
    ]
    assert not found, "no test holds the text of\n" + "\n".join(found)


def test_every_exception_is_needed() -> None:
    found = {site.key for site, _ in missing()}
    unused = [allowed for allowed in ALLOWED if not fnmatch.filter(found, allowed)]
    assert not unused


def test_messages_are_found_in_the_source() -> None:
    shown = [describe(site, pattern) for site in sites() for pattern in site.patterns]
    assert len(shown) > 400
    returned = "ArgumentError: '…': out_idx belongs to functions that return a T.prim_func"
    assert any(returned in line for line in shown)


def test_a_message_that_no_test_holds_is_found() -> None:
    made = Pattern(r"a\ sentence\ about\ '.*'\ of\ no\ test", "none")
    site = Site("ir/made_up.py", 1, "made_up", "TileTypeError", (made,))
    assert uncovered([site]) == [(site, made)]
    assert describe(site, made) == (
        "ir/made_up.py:1 made_up: TileTypeError: a sentence about '…' of no test  [hint: none]"
    )
