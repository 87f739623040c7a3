"""What a `%%tile` cell does: run, compile, check, measure, show."""

from __future__ import annotations

import difflib
import functools
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.display import display

from tileworkbench.api import Jit, jit
from tileworkbench.api import compile as compile_function
from tileworkbench.bench.timing import refuse_simulated
from tileworkbench.compiler.diagnostics import (
    CheckError,
    CompileError,
    RunError,
    UnsupportedError,
)
from tileworkbench.compiler.driver import resolve_target
from tileworkbench.compiler.frontend.function import PrimFunc
from tileworkbench.compiler.lowering import passes_of_others
from tileworkbench.tuning.autotune import Autotuned
from tileworkbench.tuning.progress import Progress
from tileworkbench.tuning.sweep import Sweep, sweep
from tileworkbench.viz.magics.commands import find_kernel
from tileworkbench.viz.magics.errors import shown_from
from tileworkbench.viz.magics.grammar import CellOptions, near
from tileworkbench.viz.magics.ledger import Version, follow_versions, ledger_of
from tileworkbench.viz.magics.source import (
    CellSource,
    bound_names,
    check_mentioned,
    execute,
    read_cell,
    remember_lines,
)
from tileworkbench.viz.magics.variants import CellVariants, closed_names, definitions_of
from tileworkbench.viz.model.bundle import in_notebook
from tileworkbench.workbench.comparison import compare
from tileworkbench.workbench.counting import count_for_view
from tileworkbench.workbench.inputs import make_inputs
from tileworkbench.workbench.kernel import Kernel

if TYPE_CHECKING:
    from tileworkbench.viz.widgets.card import SlidingCardWidget

# The names that tracebacks give to what is written on the magic's line.
_RUN, _CHECK = "<--run>", "<--check>"


def run_cell(shell: InteractiveShell, line: str, cell: str, options: CellOptions) -> Any:
    """Run and report on one cell; returns what is to be shown: the kernel, or a sweep of it."""
    if not cell.strip():
        raise UsageError("the cell is empty: write a kernel below %%tile (see '%tile examples')")
    for target in options.targets:
        resolve_target(target)
    return _Cell(shell, options).run(line, cell)


class _Cell:
    """One execution of one cell."""

    def __init__(self, shell: InteractiveShell, options: CellOptions) -> None:
        self._shell, self._options = shell, options
        self._namespace = shell.user_ns
        self._arguments: Sequence[Any] | None = None
        self._reference: Callable[..., Any] | None = None  # of --check
        self._closed: Sequence[str] = ()  # names of --sweep and --slide that the cell closes over
        self._again: Callable[[dict[str, Any]], Jit] | None = None
        self._constants = {
            name: self._evaluate(f"-D {name}={text}", text) for name, text in options.defines
        }

    def run(self, line: str, cell: str) -> Any:
        with shown_from(self._shell):
            source = read_cell(self._shell, line, cell)
        check_mentioned(source, self._constants)
        options = self._options
        self._closed = closed_names(source.tree, dict((*options.sweep, *options.slide)))
        for flag, axes in (("--sweep", options.sweep), ("--slide", options.slide)):
            for each, values in self._values(flag, axes).items():
                if each in self._closed:
                    self._constants.setdefault(each, *values[:1])
        decorate = functools.partial(
            jit,
            target=options.target,
            sanitize=options.sanitize,
            disable=self._disabled(options.target),
            fast_math=options.fast_math or None,
        )
        for target in options.targets:
            for name in [] if options.quiet else self._lacking(target):
                print(f"'--disable {name}': {target} has no such pass")
        start = time.perf_counter()
        with shown_from(self._shell, source.file, _RUN, _CHECK):
            execute(self._shell, source, self._constants, decorate, self._namespace)
            self._say(f"ran the cell in {_milliseconds(start)}")
            name = self._subject(source)
            self._again = functools.partial(self._remade, source, name, decorate)
            if options.args is not None:
                self._arguments = self._evaluate(f"--args {options.args}", f"({options.args},)")
            swept = self._sweep(name)
            if swept is not None:
                return self._swept(swept)
            kernel = self._compile(name)
            if self._options.run:
                self._run_statement(self._options.run)
                kernel = kernel or getattr(self._namespace[name], "kernel", None)
            if kernel is not None:
                kernel.with_line(line)
                before = ledger_of(self._shell).versions(name)
                ledger_of(self._shell).add(name, line, cell, kernel)
                follow_versions(ledger_of(self._shell).versions(name))
                shown = self._report(kernel)
                self._compare(name, kernel, before)
                return self._sliding(name, kernel) if shown and self._options.slide else shown
            self._postpone(name)
            return None

    def _disabled(self, target: str | None) -> tuple[str, ...]:
        """What --disable switches off for one of several targets: each has passes of its own."""
        lacking = self._lacking(target)
        return tuple(name for name in self._options.disable if name not in lacking)

    def _lacking(self, target: str | None) -> list[str]:
        """The passes of --disable that other targets of the cell have, and `target` has not."""
        if target is None:
            return []
        others = list(map(resolve_target, self._options.targets))
        return passes_of_others(self._options.disable, resolve_target(target), others)

    def _subject(self, source: CellSource) -> str:
        """The name of the kernel that the cell is about."""
        defined = [
            name
            for name in bound_names(source.tree)
            if isinstance(self._namespace.get(name), Jit | Autotuned | PrimFunc | Kernel)
        ]
        wanted = self._options.name
        if wanted is None and not defined:
            raise UsageError("the cell defines no kernel: a function that uses T.Kernel")
        if wanted is None:
            return defined[-1]
        if wanted not in defined:
            known = near(wanted, defined) if defined else "; the cell defines none"
            raise UsageError(f"'{wanted}' is not a kernel of this cell{known}")
        return wanted

    def _compile(self, name: str) -> Kernel | None:
        """The kernel of that name where its shapes are known without arguments, else None."""
        target, sanitize = self._options.target, self._options.sanitize
        disable, fast = self._disabled(target), self._options.fast_math or None
        subject = self._namespace[name]
        start = time.perf_counter()
        if isinstance(subject, PrimFunc):
            kernel = compile_function(
                subject, target=target, sanitize=sanitize, disable=disable, fast_math=fast
            )
        elif isinstance(subject, Autotuned):
            if (self._options.check or self._options.measures) and not self._options.run:
                raise UsageError(f"'{name}' is tuned when it is called: call it with --run")
            return subject.kernel
        elif isinstance(subject, Jit):
            subject = self._namespace[name] = self._with_flags(subject)
            used, missing = subject.constants(self._constants)
            if self._arguments is not None and subject.is_eager:
                kernel, self._arguments = subject.prepare(*self._arguments, **used)
                missing = []
            elif missing:
                self._refuse_without_shapes(name, missing)
                return None
            else:
                kernel = subject.compile(**used)
        else:
            kernel = subject
        how = f"cached ({kernel.record.cached})" if kernel.record.cached else "compiled"
        self._say(f"{name}: {how} for {kernel.target} in {_milliseconds(start)}")
        return kernel

    def _with_flags(self, subject: Jit) -> Jit:
        """The function as the flags want it compiled."""
        target, sanitize = self._options.target, self._options.sanitize
        disable, fast = self._disabled(target), self._options.fast_math or None
        if target is None and not (sanitize or disable or fast):
            return subject
        wanted = subject.target if target is None else target
        return subject.with_target(
            wanted, sanitize=sanitize or None, disable=disable or None, fast_math=fast
        )

    def _variants(self, flag: str, name: str, does: str) -> Jit | CellVariants:
        """The function that --sweep or --slide compiles again and again."""
        subject = self._namespace[name]
        if not isinstance(subject, Jit):
            raise UsageError(f"'{flag}': '{name}' is compiled already; {does} a function")
        subject = self._with_flags(subject)
        if not self._closed or self._again is None:
            return subject
        return CellVariants(subject, self._closed, self._again)

    def _remade(
        self, source: CellSource, name: str, decorate: Callable[..., Any], values: dict[str, Any]
    ) -> Jit:
        """The function of that name, defined anew with other values of its constants; the user's
        names stay as they are.
        """
        scratch = dict(self._namespace)
        constants = {**self._constants, **values}
        execute(self._shell, definitions_of(source), constants, decorate, scratch)
        made: Jit = scratch[name]
        return self._with_flags(made)

    def _refuse_without_shapes(self, name: str, missing: list[str]) -> None:
        options = self._options
        flags = [("--check", options.check), ("--roofline", options.roofline)]
        flags += [("--bench", options.bench is not None), ("--cold", options.cold)]
        flags += [("--count", options.count)]
        flags += [("--save", options.save)]
        asked = [flag for flag, given in flags if given]
        if asked and not options.run:
            wanted = " ".join(f"-D {each}=..." for each in missing)
            raise UsageError(
                f"{asked[0]} needs the shapes of '{name}': give {wanted}, or its inputs with --args"
            )

    def _run_statement(self, statement: str) -> None:
        start = time.perf_counter()
        remember_lines(_RUN, statement)
        exec(self._shell.compile(statement, _RUN, "exec"), self._namespace)
        self._say(f"ran '{statement}' in {_milliseconds(start)}")

    def _postpone(self, name: str) -> None:
        if self._options.output:
            self._namespace[self._options.output] = self._namespace[name]
        if self._options.quiet:
            return
        said = f"{name}: compiled when it is called, for the shapes it gets"
        subject = self._namespace[name]
        if self._constants and isinstance(subject, Jit):
            used, missing = subject.constants(self._constants)
            if used and missing:  # some are fixed, so that the others seem forgotten
                said += f" (now with {' '.join(f'-D {each}=...' for each in missing)})"
        print(said)

    def _report(self, kernel: Kernel) -> Kernel | None:
        options = self._options
        if options.output:
            self._namespace[options.output] = kernel
        if options.check or options.measures:
            given = self._arguments
            inputs = make_inputs(kernel.program) if given is None else list(given)
            if options.check:
                self._check(kernel, options.check, inputs)
            if options.measures:
                self._measure(kernel, inputs)
        if self._arguments is not None:
            kernel.with_inputs(*self._arguments)
        kernel.with_costs(options.annotate, options.count)
        if options.save:
            self._save(kernel, options.save)
        if options.quiet:
            return None
        for view in options.show:
            if view != "card":
                display(kernel.show(view))  # type: ignore[no-untyped-call]
        return kernel if "card" in options.show else None

    def _sliding(self, name: str, kernel: Kernel) -> SlidingCardWidget:
        """The card with the sliders of --slide."""
        from tileworkbench.viz.widgets.card import SlidingCardWidget

        subject = self._variants("--slide", name, "slide over")
        axes = self._values("--slide", self._options.slide)
        fixed, _ = subject.constants(self._constants)
        first = {each: values[0] for each, values in axes.items()}
        used, _ = subject.constants({**self._constants, **first})
        for each in axes:
            if each not in used:
                raise UsageError(f"'--slide {each}': no compile-time argument of '{name}'")
        return SlidingCardWidget(
            kernel.view(), axes, lambda values: subject.compile(**{**fixed, **values}).view()
        )

    def _swept(self, swept: Sweep) -> Sweep | None:
        """What the cell shows of a sweep; `-o` names it."""
        if self._options.output:
            self._namespace[self._options.output] = swept
        return None if self._options.quiet else swept

    def _sweep(self, name: str) -> Sweep | None:
        """The kernel over the values of --sweep; measured with --bench."""
        options = self._options
        if not options.sweep:
            return None
        if options.cold:
            raise UsageError("'--cold' is of one kernel; '--sweep' measures with warm caches")
        subject = self._variants("--sweep", name, "sweep")
        target = str(resolve_target(options.target or self._namespace[name].target or "auto"))
        measured = options.measures and self._can_measure(name, target)

        axes = self._values("--sweep", options.sweep)
        first = {axis: values[0] for axis, values in axes.items() if values}
        # Other kernels of the cell have constants too.
        used, _ = subject.constants({**self._constants, **first})
        bar = Progress()
        try:
            return sweep(
                subject,
                axes,
                constants={name: value for name, value in used.items() if name not in axes},
                bench=(options.bench or True) if measured else None,
                inputs=self._arguments,
                progress=bar.show,
            )
        finally:
            bar.end()

    def _values(self, flag: str, texts: Sequence[tuple[str, str]]) -> dict[str, list[Any]]:
        """The values of ``NAME=V,V`` words, which are Python."""
        return {name: self._evaluate(f"{flag} {name}={text}", f"[{text}]") for name, text in texts}

    def _compare(self, name: str, kernel: Kernel, before: Sequence[Version]) -> None:
        """Show the kernel beside those for the other targets, and beside its baseline."""
        options = self._options
        if options.quiet:
            return
        if options.baseline is not None:
            display(compare(self._baseline(name, before), kernel))  # type: ignore[no-untyped-call]
        others = []
        for target in options.targets[1:]:
            try:
                others.append(self._for_target(name, target))
            except CompileError as error:
                print(f"{target}: {type(error).__name__}: {error}")
        if others:
            display(compare(kernel, *others))  # type: ignore[no-untyped-call]

    def _baseline(self, name: str, before: Sequence[Version]) -> Kernel:
        wanted = self._options.baseline or ""
        if wanted != "prev":
            return find_kernel(self._namespace, wanted)
        line_cell = ledger_of(self._shell).versions(name)[-1]
        texts = (line_cell.line, line_cell.cell)
        older = [each for each in before if (each.line, each.cell) != texts]
        if not older:
            raise UsageError(f"'--baseline prev': this is the first version of '{name}'")
        return older[-1].kernel

    def _for_target(self, name: str, target: str) -> Kernel:
        subject, disable = self._namespace[name], self._disabled(target)
        if isinstance(subject, Jit):
            used, _ = subject.constants(self._constants)
            passes = disable if self._options.disable else None  # None: those of the function
            return subject.with_target(target, disable=passes).compile(**used)
        if isinstance(subject, PrimFunc):
            sanitize, fast = self._options.sanitize, self._options.fast_math or None
            return compile_function(
                subject, target=target, sanitize=sanitize, disable=disable, fast_math=fast
            )
        raise UsageError(f"'-t {target}': '{name}' is compiled already; give one target")

    def _check(self, kernel: Kernel, text: str, inputs: list[Any]) -> None:
        value = self._evaluate(f"--check {text}", text)
        if not callable(value):
            raise UsageError(f"'--check {text}': '{type(value).__name__}' is not callable")
        # Called from a line of its own, where a traceback of what goes wrong in it may begin.
        call = f"lambda *inputs: ({text})(*inputs)"
        remember_lines(_CHECK, call)
        reference = eval(compile(call, _CHECK, "eval"), self._namespace)
        reference.__name__, reference.__wrapped__ = text, value
        self._reference = reference
        options = self._options
        tolerances = {"rtol": options.rtol, "atol": options.atol}
        try:
            result = kernel.check(reference, *inputs, **tolerances, sanitize=options.sanitize)
        except RunError as error:
            for note in kernel.warnings:  # what is certain comes before what was measured
                print(note.render("warning"))
            error.notes = error.notes[len(kernel.warnings) :]
            if isinstance(error, CheckError) and error.hint:
                error.hint = self._way_on(kernel)
            raise
        self._say(
            f"{kernel.name}: agrees with {text}, largest error {result.max_error:.2g} "
            f"of {result.tolerance:.2g}; {result.simulated}"
        )

    def _way_on(self, kernel: Kernel) -> str:
        """What to do about results that differ, by names that the user has."""
        name = self._options.output or kernel.name
        named = isinstance(self._namespace.get(name), Jit | Kernel)
        if not named:
            return "'-o K' and then '%tile bisect K' names the pass that broke it, if one did"
        return f"'%tile bisect {name}' names the pass that broke it, if one did"

    def _measure(self, kernel: Kernel, inputs: list[Any]) -> None:
        if not self._can_measure(kernel.name, kernel.target):
            return
        # What runs on a GPU returns before it is done.
        against = self._reference if kernel.target == "cpu" else None
        options = self._options
        rounds, cold = options.bench or 0, options.cold
        result = kernel.bench(*inputs, rounds=rounds, against=against, cold=cold)
        # The live card has the times, and in a notebook nothing else may: they change every time.
        if not options.quiet and not ("card" in options.show and in_notebook()):
            display(result)  # type: ignore[no-untyped-call]
        kernel.with_roofline(options.roofline)
        if options.roofline:
            count_for_view(kernel, 1.0, *inputs)

    def _can_measure(self, name: str, target: str) -> bool:
        """Whether a time means something on `target`; the cell goes on where it does not."""
        try:
            refuse_simulated(name, target)
        except UnsupportedError as error:
            if not self._options.quiet:
                print(error)
            return False
        return True

    def _save(self, kernel: Kernel, file: str) -> None:
        try:
            self._say(f"wrote {kernel.save(file)}")
        except OSError as error:
            raise UsageError(f"'--save {file}': {error.strerror}") from None

    def _evaluate(self, flag: str, text: str) -> Any:
        """The value of an expression of the magic's line."""
        try:
            return eval(text, self._namespace)
        except Exception as error:
            reason = error.msg if isinstance(error, SyntaxError) else str(error)
            if isinstance(error, AttributeError | NameError) and error.name:
                known = dir(error.obj) if isinstance(error, AttributeError) else self._namespace
                close = difflib.get_close_matches(error.name, known, 1, 0.8)
                reason += f"; did you mean '{close[0]}'?" if close else ""
            raise UsageError(f"'{flag}': {reason or type(error).__name__}") from None

    def _say(self, text: str) -> None:
        if self._options.verbose and not self._options.quiet:
            print(text)


def _milliseconds(start: float) -> str:
    return f"{(time.perf_counter() - start) * 1e3:.1f} ms"
