"""The code of a `%%tile` cell: known to tracebacks by its lines, closed over its constants, run."""

from __future__ import annotations

import ast
import difflib
import linecache
import re
import symtable
import sys
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FrameType, FunctionType
from typing import Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from tileworkbench.compiler.fast_dataclass import dataclass

_DECORATOR = "_tile_jit"


@dataclass(frozen=True, slots=True)
class CellSource:
    """A cell's text (the magic's line comes first), its tree, and its file name in tracebacks."""

    text: str
    file: str
    tree: ast.Module


def read_cell(shell: InteractiveShell, line: str, cell: str) -> CellSource:
    """Parse a cell. Raises `SyntaxError` with the cell's own lines."""
    compiler: Any = shell.compile
    head = f"# %%tile {line}".rstrip()
    text: str = shell.transform_cell(f"{head}\n{cell}")  # type: ignore[no-untyped-call]
    file = _file_name(shell, cell)
    remember_lines(file, text)
    return CellSource(text, file, compiler.ast_parse(text, file))


def name_cell(shell: InteractiveShell, line: str, cell: str) -> str:
    """The file name by which diagnostics know a cell of other text than Python."""
    file = _file_name(shell, cell)
    remember_lines(file, f"%%tile {line}\n{cell}")
    return file


def _file_name(shell: InteractiveShell, cell: str) -> str:
    # It depends on the body alone: an unchanged kernel is found in the caches whatever flags it is
    # given, and whatever number the cell has.
    compiler: Any = shell.compile
    key = f"%%tile\n{cell}"
    file: str = compiler.get_code_name(key, key, 0)
    compiler._filename_map[file] = _cell_number(shell)
    return file


def remember_lines(file: str, text: str) -> None:
    """Let tracebacks find the lines of a text that is in no file."""
    linecache.cache[file] = (len(text), None, [f"{each}\n" for each in text.split("\n")], file)


def _cell_number(shell: InteractiveShell) -> int:
    """The number of the running cell: `shell.execution_count` is one ahead by now."""
    numbers: dict[str, int] = shell.compile._filename_map
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        number = numbers.get(frame.f_code.co_filename)
        if number is not None:
            return number
        frame = frame.f_back
    return int(shell.execution_count)


def kernel_functions(tree: ast.Module) -> list[ast.FunctionDef]:
    """The functions at the top of a cell that launch a grid, or hold a function that does."""
    return [node for node in tree.body if isinstance(node, ast.FunctionDef) and _launches(node)]


def _launches(node: ast.FunctionDef) -> bool:
    called = (child.func for child in ast.walk(node) if isinstance(child, ast.Call))
    return any(isinstance(func, ast.Attribute) and func.attr == "Kernel" for func in called)


def bound_names(tree: ast.Module) -> list[str]:
    """The names that a cell's functions and assignments bind, in the order of the last ones."""
    names: dict[str, None] = {}
    for node in tree.body:
        for name in _bound(node):
            names.pop(name, None)
            names[name] = None
    return list(names)


def _bound(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
        return
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    for child in ast.iter_child_nodes(node):
        yield from _bound(child)


def check_mentioned(source: CellSource, names: Mapping[str, Any]) -> None:
    """Raise `UsageError` for a constant that the cell never mentions: surely it is misspelt."""
    body = source.text.partition("\n")[2]
    words = dict.fromkeys(re.findall(r"\b[^\W\d]\w*", body))
    for name in names:
        if name not in words:
            close = difflib.get_close_matches(name, words, 1)
            hint = f"; did you mean '{close[0]}'?" if close else ""
            raise UsageError(f"'-D {name}' names nothing in the cell{hint}")


def execute(
    shell: InteractiveShell,
    source: CellSource,
    constants: Mapping[str, Any],
    decorate: Callable[[Callable[..., Any]], Any],
    namespace: dict[str, Any],
) -> None:
    """Run a cell in a namespace, `constants` seen by its code alone.

    Kernel functions without a decorator get `decorate`.
    """
    compiler = _compiler(shell)
    for node in kernel_functions(source.tree):
        if not node.decorator_list:
            node.decorator_list.append(ast.copy_location(ast.Name(_DECORATOR, ast.Load()), node))
    code = compiler(source.tree, source.file, "exec")
    namespace[_DECORATOR] = decorate
    try:
        if constants:
            _execute_closed(shell, source, constants, namespace)
        else:
            exec(code, namespace)
    finally:
        namespace.pop(_DECORATOR, None)


def _execute_closed(
    shell: InteractiveShell,
    source: CellSource,
    constants: Mapping[str, Any],
    namespace: dict[str, Any],
) -> None:
    """Run a cell as the body of a function that has the constants as parameters.

    So its functions close over them and still know them when they are traced, long after the
    cell. Every other name it binds is declared global, as without constants.
    """
    outside = [node for node in source.tree.body if _needs_module(node)]
    plain = _PlainAssignments()
    inside = [plain.visit(node) for node in source.tree.body if not _needs_module(node)]
    names = sorted(_module_names(source) - constants.keys())
    scope: list[ast.stmt] = [ast.Global(names)] if names else []
    arguments = [ast.arg(name) for name in constants]
    parameters = ast.arguments([], arguments, kwonlyargs=[], kw_defaults=[], defaults=[])
    # Tracebacks name a frame of this function as they name a module's.
    body = ast.FunctionDef("<module>", parameters, [*scope, *inside, ast.Pass()], decorator_list=[])
    if sys.version_info >= (3, 12):
        body.type_params = []
    module = ast.fix_missing_locations(ast.Module([body], type_ignores=[]))
    compiler = _compiler(shell)
    imports = compiler(ast.Module(outside, type_ignores=[]), source.file, "exec")
    code = compiler(module, source.file, "exec")
    inner = next(value for value in code.co_consts if isinstance(value, CodeType))
    exec(imports, namespace)
    FunctionType(inner, namespace)(**constants)


def _compiler(shell: InteractiveShell) -> Callable[[ast.Module, str, str], CodeType]:
    """The compiler of cells, which knows the `__future__` imports of earlier ones."""
    compiler: Any = shell.compile
    return compiler  # type: ignore[no-any-return]


def _needs_module(node: ast.stmt) -> bool:
    """Whether a statement is legal at the top of a module only."""
    return isinstance(node, ast.ImportFrom) and (
        node.module == "__future__" or node.names[0].name == "*"
    )


class _PlainAssignments(ast.NodeTransformer):
    """Declarations of a name's type as plain assignments: a global name cannot be declared."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        if not isinstance(node.target, ast.Name):
            return node
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        return ast.copy_location(ast.Assign([node.target], node.value), node)

    def _keep(self, node: ast.AST) -> ast.AST:
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = visit_Lambda = _keep


def _module_names(source: CellSource) -> set[str]:
    """Every name that the cell binds at its top level."""
    table = symtable.symtable(source.text, source.file, "exec")
    return {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported()}
