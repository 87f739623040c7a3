"""`%%tile` and `%tile`: they parse a line, call the public API and display what it returns."""

from __future__ import annotations

import ast
import sys
import time
from types import CodeType, FrameType
from typing import Any

from IPython.core.completer import SimpleCompletion, context_matcher
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class, no_var_expand
from IPython.display import display

from tileworkbench.api import Jit, jit, targets
from tileworkbench.compiler.diagnostics import ArgumentError, TileError
from tileworkbench.compiler.driver import clear_memory_cache
from tileworkbench.kernel import Kernel
from tileworkbench.viz.magic_line import (
    CellOptions,
    LineError,
    cell_parser,
    complete,
    parse_cell_line,
    parse_command,
)

try:  # a trailing `;` silences a magic from IPython 8.17 on
    from IPython.core.magic import output_can_be_silenced
except ImportError:  # pragma: no cover

    def output_can_be_silenced(function: Any) -> Any:
        return function


_COMMANDS = """\
%tile show KERNEL [VIEW]        one view of a kernel: card, source, passes, layouts, code, roofline
%tile bench KERNEL [ARGS...]    measure it on these arguments (default: random ones)
%tile bisect KERNEL [ARGS...]   simulate after every pass and name the first that changes a result
%tile list                      the kernels of this session
%tile targets                   every target, and what is usable here
%tile peaks [--measure]         this machine's measured ceilings
%tile examples                  a kernel to start from
%tile clear-cache               forget compiled kernels, in memory and on disk
"""

_EXAMPLE = '''\
%%tile matmul --check torch.matmul
def matmul(A: T.Tensor((512, 512), "float32"), B: T.Tensor((512, 512), "float32")):
    C = T.empty((512, 512), "float32")
    with T.Kernel(4, 4, threads=128) as (bx, by):
        A_shared = T.alloc_shared((128, 32), "float32")
        B_shared = T.alloc_shared((32, 128), "float32")
        C_local = T.alloc_fragment((128, 128), "float32")
        T.clear(C_local)
        for k in T.Pipelined(512 // 32, num_stages=3):
            T.copy(A[by * 128, k * 32], A_shared)
            T.copy(B[k * 32, bx * 128], B_shared)
            T.gemm(A_shared, B_shared, C_local)
        T.copy(C_local, C[by * 128, bx * 128])
    return C
'''


@magics_class
class TileMagics(Magics):
    """The two magics; see `%tile help`."""

    shell: InteractiveShell

    @no_var_expand
    @output_can_be_silenced
    @cell_magic("tile")
    def tile_cell(self, line: str, cell: str) -> Kernel | None:
        """Compile the tile kernels of this cell, check and measure them, and show a card.

        See `%tile help` for the flags.
        """
        __tracebackhide__ = True
        options = _parsed(parse_cell_line, line)
        if options.help:
            print(cell_parser().format_help())
            return None
        if not cell.strip():
            raise UsageError("the cell is empty: write a kernel below %%tile (see %tile examples)")
        start = time.perf_counter()
        defined = self._execute(line, cell, options)
        subject = self._subject(options.name, defined)
        kernel = self._compile(subject, options)
        if options.verbose:
            print(f"{time.perf_counter() - start:.3f} s to run and compile the cell")
        if options.run:
            self._run(options.run)
            kernel = kernel or subject.kernel
        if kernel is None:
            if not options.quiet:
                print(f"{subject!r}: compiled when it is called, for the shapes it gets")
            return None
        return self._report(kernel, options)

    # The cell

    def _execute(self, line: str, cell: str, options: CellOptions) -> list[str]:
        """Run the cell in the user's namespace; returns the names of its kernels, in order."""
        __tracebackhide__ = True
        namespace = self.shell.user_ns
        values = {name: eval(text, namespace) for name, text in options.defines}
        name = self.shell.compile.cache(f"%%tile {line}\n{cell}", _cell_number(self.shell))
        # The blank first line stands for the magic's, so that lines count as in the cell.
        tree = ast.parse("\n" + cell, name)
        kernels = [node.name for node in tree.body if _is_kernel(node)]
        code = _with_constants(tree, tuple(values), name)
        _offer_names(namespace)
        hidden = {key: namespace[key] for key in values if key in namespace}
        namespace.update(values)
        try:
            exec(code, namespace)
        finally:
            for key in values:
                namespace.pop(key, None)
            namespace.update(hidden)
        for kernel in kernels:
            if callable(namespace[kernel]) and not isinstance(namespace[kernel], Jit | Kernel):
                namespace[kernel] = jit(namespace[kernel], target=options.target)
            elif isinstance(namespace[kernel], Jit) and options.target is not None:
                namespace[kernel].target = options.target
        return kernels

    def _subject(self, name: str | None, defined: list[str]) -> Jit:
        if name is None and not defined:
            raise UsageError("the cell defines no kernel: a function that uses T.Kernel")
        chosen = name or defined[-1]
        found = self.shell.user_ns.get(chosen)
        if not isinstance(found, Jit):
            known = ", ".join(defined) or "none"
            raise UsageError(f"'{chosen}' is not a kernel of this cell (it has: {known})")
        return found

    def _compile(self, subject: Jit, options: CellOptions) -> Kernel | None:
        """The kernel when its shapes are known without arguments, else None."""
        __tracebackhide__ = True
        values = {name: eval(text, self.shell.user_ns) for name, text in options.defines}
        used, missing = subject.constants(values)
        if not missing:
            return subject.compile(**used)
        if options.check or options.bench is not None or options.roofline:
            raise UsageError(
                f"--check and --bench need fixed shapes: give {', '.join(missing)} a value with -D"
            )
        return None

    def _run(self, statement: str) -> None:
        __tracebackhide__ = True
        exec(compile(statement, "<--run>", "exec"), self.shell.user_ns)

    def _report(self, kernel: Kernel, options: CellOptions) -> Kernel | None:
        __tracebackhide__ = True
        from tileworkbench.validation import make_inputs

        namespace = self.shell.user_ns
        if options.output:
            namespace[options.output] = kernel
        if options.check or options.bench is not None or options.roofline:
            inputs = make_inputs(kernel.program)
            if options.check:
                reference = eval(options.check, namespace)
                kernel.check(reference, *inputs, rtol=options.rtol, atol=options.atol)
            if options.bench is not None or options.roofline:
                kernel.bench(*inputs, rounds=options.bench or 0)
                kernel.with_roofline(options.roofline)
        if options.save:
            kernel.save(options.save)
        if options.quiet:
            return None
        for view in options.show:
            if view != "card":
                display(kernel.show(view))
        return kernel if "card" in options.show else None

    # The line magic

    @no_var_expand
    @output_can_be_silenced
    @line_magic("tile")
    def tile_line(self, line: str) -> Any:
        """Commands about kernels, targets and this machine: `%tile help` lists them."""
        __tracebackhide__ = True
        command, words = _parsed(parse_command, line)
        return getattr(self, "_command_" + command.replace("-", "_"))(words)

    def _kernel(self, words: list[str]) -> Kernel:
        """The kernel that the first word names."""
        if not words:
            raise UsageError("which kernel? (%tile list shows them)")
        found = self.shell.user_ns.get(words[0])
        if isinstance(found, Jit):
            found = found.kernel or (None if found.constants({})[1] else found.compile())
            if found is None:
                raise UsageError(f"'{words[0]}' is compiled when it is called; call it first")
        if not isinstance(found, Kernel):
            raise UsageError(f"'{words[0]}' is not a kernel (%tile list shows them)")
        return found

    def _arguments(self, kernel: Kernel, words: list[str]) -> list[Any]:
        from tileworkbench.validation import make_inputs

        if len(words) > 1:
            return [eval(word, self.shell.user_ns) for word in words[1:]]
        return make_inputs(kernel.program)

    def _command_help(self, words: list[str]) -> None:
        print(cell_parser().format_help())
        print(_COMMANDS)

    def _command_examples(self, words: list[str]) -> None:
        print(_EXAMPLE)

    def _command_show(self, words: list[str]) -> Any:
        return self._kernel(words).show(words[1] if len(words) > 1 else "card")

    def _command_bench(self, words: list[str]) -> Any:
        kernel = self._kernel(words)
        return kernel.bench(*self._arguments(kernel, words))

    def _command_bisect(self, words: list[str]) -> None:
        kernel = self._kernel(words)
        print(kernel.validate(*self._arguments(kernel, words)))

    def _command_list(self, words: list[str]) -> None:
        for name in self.kernels():
            print(name, repr(self.shell.user_ns[name]), sep="  ")

    def _command_targets(self, words: list[str]) -> None:
        for target in targets():
            print(f"{target.name:<16}{'usable' if target.usable else target.reason}")

    def _command_peaks(self, words: list[str]) -> Any:
        from tileworkbench.bench.ceilings import machine

        found = machine(measure="--measure" in words)
        print(found.name)
        for ceiling in found.ceilings:
            print(f"  {ceiling.name:<10}{ceiling.threads:>3} T {ceiling.value:10.1f} {ceiling.unit}")

    def _command_clear_cache(self, words: list[str]) -> None:
        from tileworkbench.compiler.runtime.cache import default_cache

        clear_memory_cache()
        default_cache().clear()

    def kernels(self) -> list[str]:
        """The names of the user's kernels."""
        items = list(self.shell.user_ns.items())
        return [name for name, value in items if isinstance(value, Jit | Kernel) and name[0] != "_"]


def _parsed(parse: Any, line: str) -> Any:
    __tracebackhide__ = True
    try:
        return parse(line)
    except LineError as error:
        raise UsageError(str(error)) from None


def _cell_number(shell: InteractiveShell) -> int:
    """The number of the running cell: `shell.execution_count` is one ahead by now."""
    numbers: dict[str, int] = getattr(shell.compile, "_filename_map", {})
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        number = numbers.get(frame.f_code.co_filename)
        if number is not None:
            return number
        frame = frame.f_back
    return int(shell.execution_count)


def _is_kernel(node: ast.stmt) -> bool:
    """Whether a top-level statement defines a function that uses T.Kernel."""
    if not isinstance(node, ast.FunctionDef):
        return False
    called = (child.func for child in ast.walk(node) if isinstance(child, ast.Call))
    return any(isinstance(func, ast.Attribute) and func.attr == "Kernel" for func in called)


def _with_constants(tree: ast.Module, names: tuple[str, ...], file: str) -> CodeType:
    """The cell's code, its functions closed over the -D constants.

    A function looks up its globals when it is traced, long after the constants have left the
    namespace; so each definition is wrapped in a function that has them as parameters.
    """
    if names:
        body: list[ast.stmt] = []
        for node in tree.body:
            body += _close_over(node, names) if isinstance(node, ast.FunctionDef) else [node]
        tree.body = body
        ast.fix_missing_locations(tree)
    return compile(tree, file, "exec")


def _close_over(node: ast.FunctionDef, names: tuple[str, ...]) -> list[ast.stmt]:
    maker = f"_tile_make_{node.name}"
    parameters = ast.arguments(
        posonlyargs=[], args=[ast.arg(name) for name in names], kwonlyargs=[], kw_defaults=[], defaults=[]
    )
    result = ast.Return(ast.Name(node.name, ast.Load()))
    outer = ast.FunctionDef(
        name=maker, args=parameters, body=[node, result], decorator_list=[], lineno=node.lineno, col_offset=0
    )
    call = ast.Call(ast.Name(maker, ast.Load()), [ast.Name(n, ast.Load()) for n in names], [])
    bind = ast.Assign([ast.Name(node.name, ast.Store())], call, lineno=node.lineno)
    forget = ast.Delete([ast.Name(maker, ast.Del())])
    for made in (outer, bind, forget):
        ast.copy_location(made, node)
    return [outer, bind, forget]


def _offer_names(namespace: dict[str, Any]) -> None:
    """`T` and `tw`, where the user has not bound them."""
    import tileworkbench
    import tileworkbench.language

    namespace.setdefault("T", tileworkbench.language)
    namespace.setdefault("tw", tileworkbench)


# Loading


def _show_error(shell: InteractiveShell, kind: Any, value: Any, trace: Any, tb_offset: Any = None) -> Any:
    """Our diagnostics instead of IPython's rendering of a SyntaxError."""
    lines = value.render().splitlines()
    shell._showtraceback(kind, value, lines)
    return lines


def load(shell: InteractiveShell) -> None:
    """Register the magics, their completion and the rendering of our errors. Idempotent."""
    if getattr(shell, "_tile_magics", None) is not None:
        return
    magics = TileMagics(shell)
    shell.register_magics(magics)

    @context_matcher()  # type: ignore[untyped-decorator]
    def tile_matcher(context: Any) -> Any:
        line = context.full_text[: context.cursor_position].lstrip()
        if "\n" in line or not line.startswith(("%%tile ", "%tile ")):
            return {"completions": []}
        found = complete(line, magics.kernels())
        return {"completions": [SimpleCompletion(text) for text in found], "suppress": bool(found)}

    if shell.Completer is not None:
        shell.Completer.custom_matchers.append(tile_matcher)
    # IPython renders every SyntaxError itself, ours included, unless told otherwise.
    from tileworkbench.compiler.diagnostics import TileSyntaxError

    if not shell.custom_exceptions:
        shell.set_custom_exc((TileSyntaxError,), _show_error)
    _register_layouts(shell)
    shell._tile_magics = (magics, tile_matcher)  # type: ignore[attr-defined]


def _register_layouts(shell: InteractiveShell) -> None:
    """Layouts show themselves as a picture, though the compiler knows no Jupyter."""
    from tileworkbench.viz.display import layout_mimebundle

    formatter = shell.display_formatter.mimebundle_formatter
    for name in ("Layout", "Fragment"):
        module = f"tileworkbench.compiler.layout.{name.lower()}"
        formatter.for_type_by_name(module, name, layout_mimebundle)


def unload(shell: InteractiveShell) -> None:
    """Undo `load`."""
    loaded = getattr(shell, "_tile_magics", None)
    if loaded is None:
        return
    magics, matcher = loaded
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop("tile", None)
    if shell.Completer is not None and matcher in shell.Completer.custom_matchers:
        shell.Completer.custom_matchers.remove(matcher)
    shell._tile_magics = None  # type: ignore[attr-defined]


__all__ = ["ArgumentError", "TileError", "TileMagics", "load", "unload"]
