"""Loading and unloading: magics, completion, errors and what passes left before them, pictures of
layouts, measurements.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from IPython.core.completer import SimpleCompletion, context_matcher
from IPython.core.interactiveshell import InteractiveShell

from tileworkbench.compiler.diagnostics import CheckError, Interrupted, RunError, TileError
from tileworkbench.viz.magics.errors import SYNTAX_ERRORS, show_syntax_error
from tileworkbench.viz.magics.grammar import Names, complete
from tileworkbench.viz.magics.magic import TileMagics, give_names

# That a failed call is looked into without being asked: a few seconds. It is no time, or what is
# shown, and saved, would depend on how fast the machine is.
_REPLAY_STATEMENTS = 20_000
_LOADED = "_tile_extension"
# What the extension shows of classes that know nothing of notebooks: module, class, and the
# function of `viz.display`.
_SHOWN = (
    ("tileworkbench.compiler.layout.layout", "Layout", "layout_mimebundle"),
    ("tileworkbench.compiler.layout.fragment", "Fragment", "layout_mimebundle"),
    ("tileworkbench.bench.timing", "BenchResult", "bench_mimebundle"),
)


def load(shell: InteractiveShell, package: ModuleType) -> None:
    """Register everything, and give the user `package` as `tw` and the language as `T`, unless the
    names are taken. Idempotent.
    """
    if getattr(shell, _LOADED, None) is not None:
        return
    give_names(shell, package)
    shell.register_magics(TileMagics(shell, package))
    matcher = _matcher(shell)
    if shell.Completer is not None:
        shell.Completer.custom_matchers.append(matcher)
    if not shell.custom_exceptions:
        shell.set_custom_exc(  # type: ignore[no-untyped-call]
            SYNTAX_ERRORS, show_syntax_error
        )
    if shell.display_formatter is not None:
        for module, name, function in _SHOWN:
            shell.display_formatter.mimebundle_formatter.for_type_by_name(
                module, name, functools.partial(_shown, function)
            )
    shell.events.register("post_run_cell", _show_stopped)
    setattr(shell, _LOADED, matcher)


def unload(shell: InteractiveShell) -> None:
    """Undo `load`. `tw` and `T` stay: kernels that were defined use them when they are traced."""
    matcher = getattr(shell, _LOADED, None)
    if matcher is None:
        return
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop("tile", None)
    shell.magics_manager.registry.pop(TileMagics.__name__, None)
    if shell.Completer is not None:
        shell.Completer.custom_matchers.remove(matcher)
    if shell.custom_exceptions == SYNTAX_ERRORS:
        shell.set_custom_exc((), None)  # type: ignore[no-untyped-call]
    if shell.display_formatter is not None:
        for module, name, _ in _SHOWN:
            shell.display_formatter.mimebundle_formatter.pop(f"{module}.{name}", None)
    shell.events.unregister("post_run_cell", _show_stopped)
    setattr(shell, _LOADED, None)


def _show_stopped(result: Any) -> None:
    """Below the error of a cell whose compilation was ended by a pass, the passes so far; of one
    whose check failed, where the wrong elements are, or the view that shows what else is wrong; of
    one in which the simulator found something wrong, the block at that moment.
    """
    from tileworkbench.compiler.driver import record_of
    from tileworkbench.viz.model.bundle import in_notebook

    error = result.error_in_exec
    if error is None or not in_notebook():
        return
    from IPython.display import display, publish_display_data

    from tileworkbench.viz.display import (
        failed_mimebundle,
        replayed_mimebundle,
        stopped_mimebundle,
    )

    if isinstance(error, CheckError) and error.view:
        display(error.kernel.show(error.view))  # type: ignore[no-untyped-call]
        return
    if isinstance(error, CheckError) and error.map is not None:
        data, metadata = failed_mimebundle(error.kernel.view())
    elif isinstance(error, RunError) and _replays(error):
        data, metadata = replayed_mimebundle(error.kernel.view())
    elif (record := record_of(error)) is not None:
        data, metadata = stopped_mimebundle(record)
    else:
        return
    publish_display_data(data, metadata)  # type: ignore[no-untyped-call]


def _replays(error: RunError) -> bool:
    """Whether the simulator shows what went wrong: it runs the call again, and records it."""
    if error.kernel is None or isinstance(error, CheckError | Interrupted):
        return False
    try:
        replay = error.kernel.replay(seconds=None, most_statements=_REPLAY_STATEMENTS)
        return bool(replay.moments)
    except TileError:
        return False  # the error itself is shown already


def _shown(function: str, value: Any, **options: Any) -> Any:
    from tileworkbench.viz import display

    return getattr(display, function)(value, **options)


def _matcher(shell: InteractiveShell) -> Any:
    @context_matcher()  # type: ignore[untyped-decorator]
    def tile_matcher(context: Any) -> Any:
        line = _magic_line(context)
        if line is None:
            return {"completions": []}

        def kernels() -> Iterator[str]:
            from tileworkbench.viz.magics.commands import kernel_names

            in_cell = re.findall(r"^def (\w+)", context.full_text, re.M)
            yield from dict.fromkeys([*in_cell, *kernel_names(shell.user_ns)])

        def starting(text: str) -> list[str]:
            completer: Any = shell.Completer
            return list((completer.attr_matches if "." in text else completer.global_matches)(text))

        def passes_of(name: str) -> list[str]:
            value = shell.user_ns.get(name)
            kernel = getattr(value, "kernel", value)
            record = getattr(kernel, "record", None)
            return [] if record is None else [each.name for each in record.snapshots]

        names = Names(kernels, starting, _targets, optional_pass_names, passes_of)
        replaced, texts = complete(line, names)
        completions = [SimpleCompletion(text) for text in texts]
        return {
            "completions": completions,
            "matched_fragment": replaced,
            "suppress": bool(texts),
            "ordered": True,
        }

    return tile_matcher


def _targets() -> list[str]:
    """What a cell can be compiled for on this machine; only a call needs a device."""
    from tileworkbench.api import targets

    names = [each.name for each in targets() if each.usable or each.name.startswith("cuda:")]
    order = {kind: place for place, kind in enumerate(("cpu", "sim", "ptx", "cuda"))}
    return ["auto", *sorted(names, key=lambda name: order.get(name.partition(":")[0], len(order)))]


def optional_pass_names() -> list[str]:
    """The passes that can be switched off, those of all targets."""
    from tileworkbench.compiler.driver import resolve_target
    from tileworkbench.compiler.lowering import optional_passes

    resolved = map(resolve_target, ("cpu", "sim:sm_80"))
    names = [name for target in resolved for name in optional_passes(target)]
    return list(dict.fromkeys(names))


def _magic_line(context: Any) -> str | None:
    """The text of a magic of ours up to the cursor, None where the cursor is elsewhere."""
    text: str = context.text_until_cursor
    if text.startswith("%%tile ") and not context.full_text[: context.full_text.find(text)].strip():
        return text
    match = re.match(r"\s*(?:[\w, ]+=\s*)?(%tile .*)", text)
    return match.group(1) if match else None
