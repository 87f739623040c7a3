"""What the commands of `%tile` do."""

from __future__ import annotations

import inspect
from typing import Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from tileworkbench.api import Jit, targets
from tileworkbench.bench.units import format_percent
from tileworkbench.compiler.device.host.cache import default_cache
from tileworkbench.compiler.driver import clear_memory_cache
from tileworkbench.tuning.autotune import Autotuned
from tileworkbench.tuning.progress import Progress
from tileworkbench.viz.magics.forms import form_help
from tileworkbench.viz.magics.grammar import LAYOUTS, cell_help, command_help, near
from tileworkbench.viz.magics.ledger import ledger_of
from tileworkbench.viz.model.playground import EXAMPLES
from tileworkbench.workbench.comparison import Comparison, compare
from tileworkbench.workbench.inputs import make_inputs
from tileworkbench.workbench.kernel import Kernel
from tileworkbench.workbench.playgrounds import playground
from tileworkbench.workbench.validation import validate_passes

_KERNELS = (Jit, Autotuned, Kernel)


def kernel_names(namespace: dict[str, Any]) -> list[str]:
    """The names of the user's kernels, without the notebook's own (`_`, `_3`, ...)."""
    items = list(namespace.items())
    return [name for name, value in items if isinstance(value, _KERNELS) and name[0] != "_"]


def find_kernel(namespace: dict[str, Any], name: str) -> Kernel:
    """The user's kernel of that name, compiled now where its shapes are known.

    Raises `UsageError`.
    """
    known = kernel_names(namespace)
    kernel = namespace.get(name)
    if isinstance(kernel, Autotuned):
        kernel = kernel.kernel or kernel.jit
    if isinstance(kernel, Jit):
        missing = kernel.constants({})[1]
        kernel = kernel.kernel or (None if missing else kernel.compile())
        if kernel is None:
            raise UsageError(f"'{name}' is compiled when it is called; call it first")
    if not isinstance(kernel, Kernel):
        raise UsageError(f"'{name}' is not a kernel{near(name, known) if known else ''}")
    return kernel


def run_command(shell: InteractiveShell, command: str, words: list[str]) -> Any:
    """Run one command of `COMMANDS`; returns what the cell is to show."""
    run = getattr(_Commands(shell), "run_" + command.replace("-", "_"))
    return run(words)


class _Commands:
    """One method per command."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell, self._namespace = shell, shell.user_ns
        self._ledger = ledger_of(shell)

    def run_help(self, words: list[str]) -> None:
        print(cell_help())
        print(form_help())
        print(command_help(), end="")

    def run_examples(self, words: list[str]) -> None:
        from tileworkbench.viz.magics.examples import EXAMPLES, example_cell, example_list

        if not words:
            print(example_list(), end="")
            return
        if words[0] not in EXAMPLES:
            raise UsageError(f"'{words[0]}' is no kernel of the library{near(words[0], EXAMPLES)}")
        self._shell.set_next_input(example_cell(words[0]))

    def run_course(self, words: list[str]) -> Any:
        from tileworkbench.viz.magics.course import open_chapter

        return open_chapter(words)

    def run_puzzle(self, words: list[str]) -> Any:
        from tileworkbench.viz.magics.puzzles import show_puzzle

        return show_puzzle(self._shell, words)

    def run_hint(self, words: list[str]) -> Any:
        from tileworkbench.viz.magics.puzzles import show_hint

        return show_hint(self._shell, words)

    def run_solution(self, words: list[str]) -> Any:
        from tileworkbench.viz.magics.puzzles import show_solution

        return show_solution(self._shell, words)

    def run_show(self, words: list[str]) -> Any:
        kernel = self._kernel(words)
        if len(words) > 2:
            kernel.with_inputs(*self._arguments(kernel, words[1:]))
        return kernel.show(words[1] if len(words) > 1 else "card")

    def run_bench(self, words: list[str]) -> Any:
        cold = "--cold" in words
        words = [word for word in words if word != "--cold"]
        kernel = self._kernel(words)
        return kernel.bench(*self._arguments(kernel, words), cold=cold)

    def run_compare(self, words: list[str]) -> Comparison:
        kernels = [find_kernel(self._namespace, word) for word in words] or [self._kernel(words)]
        if len(kernels) == 1:
            versions = self._ledger.versions(words[0])
            if len(versions) < 2:
                raise UsageError(f"there is one version of '{words[0]}': name another kernel")
            kernels = [version.kernel for version in versions[-2:]]
        return compare(*kernels)

    def run_apply(self, words: list[str]) -> None:
        from tileworkbench.viz.model.annotated_cell import cell_with
        from tileworkbench.viz.model.tiles import find_tile
        from tileworkbench.viz.model.what_if import choose

        if len(words) != 3:
            layouts = ", ".join(LAYOUTS)
            raise UsageError(f"%tile apply takes a kernel, a tile and a layout: {layouts}")
        kernel = self._kernel(words)
        view = kernel.view()
        tile = find_tile(view, words[1])
        text = cell_with(view.record, tile, choose(tile, words[2]).line, view.line)
        self._shell.set_next_input(text)

    def run_layout(self, words: list[str]) -> Any:
        layout, operation, other = (*words, "", "")[:3]
        if operation == "help":
            print(inspect.getdoc(playground))
            return None
        return playground(layout or EXAMPLES[0], operation, other)

    def run_ir(self, words: list[str]) -> None:
        self._put("ir", words)

    def run_src(self, words: list[str]) -> None:
        self._put("src", words)

    def _put(self, form: str, words: list[str]) -> None:
        from tileworkbench.viz.magics.edits import put_cell

        put_cell(self._shell, form, words)

    def run_assert(self, words: list[str]) -> None:
        kernel = self._kernel(words)
        for outcome in kernel.expect(*words[1:]):
            print(outcome)

    def run_bisect(self, words: list[str]) -> None:
        kernel, bar = self._kernel(words), Progress()
        failed = kernel._failed is not None and len(words) == 1
        args = kernel._failed[1] if failed and kernel._failed else self._arguments(kernel, words)
        try:
            validation = validate_passes(kernel, args, bar.show)
        finally:
            bar.end()
        print(validation)
        if failed:
            print(kernel.error_map)

    def run_list(self, words: list[str]) -> None:
        names = kernel_names(self._namespace)
        if not names:
            print("no kernels yet")
        for name in names:
            print(f"{name}  {self._namespace[name]!r}")

    def run_targets(self, words: list[str]) -> None:
        for target in targets():
            print(f"{target.name:<16}{'usable' if target.usable else target.reason}")

    def run_peaks(self, words: list[str]) -> None:
        from tileworkbench.bench.ceilings import machine

        if words not in ([], ["--measure"]):
            raise UsageError(f"%tile peaks takes --measure or nothing, not '{' '.join(words)}'")
        peaks = machine(measure=bool(words))
        print(peaks.name)
        for each in peaks.ceilings:
            sure = f"  ±{format_percent(each.spread)}" if peaks.busy else ""
            if each.shared:
                sure = f"  seen {each.seen}"
            print(f"  {each.name:<12}{each.threads:>3} T{each.value:12.1f} {each.shown_unit}{sure}")
        for remark in filter(None, (peaks.doubt, peaks.caveat)):
            print(remark)

    def run_clear_cache(self, words: list[str]) -> None:
        clear_memory_cache()
        default_cache().clear()

    def _kernel(self, words: list[str]) -> Kernel:
        """The kernel that the first word names."""
        if not words:
            raise UsageError(f"which kernel?{_known(kernel_names(self._namespace))}")
        return find_kernel(self._namespace, words[0])

    def _arguments(self, kernel: Kernel, words: list[str]) -> list[Any]:
        """The values of the expressions after the name, or random inputs where there are none."""
        return [self._value(text) for text in words[1:]] or make_inputs(kernel.program)

    def _value(self, text: str) -> Any:
        try:
            return eval(text, self._namespace)
        except Exception as error:
            raise UsageError(f"'{text}': {error}") from None


def _known(names: list[str]) -> str:
    return f" One of {', '.join(names)}" if names else " (there is none yet: see '%tile examples')"
