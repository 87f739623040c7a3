"""Which messages of the package no test holds as text.

`sites` reads the package's source and lists every place that builds an error of ours, or one of
Python's own kinds that the front end turns into ours, with the patterns its message can have: the
literal parts in order, anything in between. `texts` reads what tests expect: golden files and the
strings of test modules. A message is covered when a whole line of some text fits its pattern and,
where the error has a hint, a line with the hint follows. Places that share one pattern need as many
different texts.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "tileworkbench"
TESTS = ROOT / "tests"

# Python's own kinds, where the front end gives them a place and a kind of ours.
_BUILTIN = {"TypeError", "ValueError", "IndexError", "ZeroDivisionError", "OverflowError"}
_PLACED = ("compiler/ir/build.py", "compiler/ir/types.py", "compiler/frontend/", "language/")
_ANY = ".*"
_HOLE = "…"  # what a test computes
_LEAST_LETTERS = 6


@dataclass(frozen=True)
class Pattern:
    """What one place's message looks like, as regular expressions."""

    message: str
    hint: str | None = None

    @property
    def opaque(self) -> bool:
        """Whether hardly any of the message stands in this place."""
        return _is_opaque(self.message)

    def regex(self) -> re.Pattern[str]:
        # A test may hold the message without what is put in front of it for every case.
        body = self.message.removeprefix(_ANY + r"\ ")
        text = rf"^(?:.*[:' ] ?)?{body}$"
        if self.hint is not None:
            text += rf"(?s:.*?)^(?:hint: (?:{self.hint}|.*{_HOLE}.*)|{_HOLE})$"
        return re.compile(text, re.MULTILINE)


def _is_opaque(message: str) -> bool:
    return sum(letter.isalpha() for letter in message.replace(_ANY, "")) < _LEAST_LETTERS


@dataclass(frozen=True)
class Site:
    """A place that builds an error."""

    path: str
    line: int
    function: str
    kind: str
    patterns: tuple[Pattern, ...]

    @property
    def key(self) -> str:
        """What a list of exceptions calls it: lines move, names stay."""
        return f"{self.path}:{self.function}"


@dataclass(frozen=True)
class _Builder:
    """A call that makes an error: where its message and hint are among the arguments."""

    kind: str
    message: int
    message_name: str
    hint: int | None = None
    hint_name: str = "hint"


class _Module:
    """One source file: its functions and what names are assigned to."""

    def __init__(self, path: Path) -> None:
        self.path = path.relative_to(PACKAGE).as_posix()
        self.tree = ast.parse(path.read_text(encoding="utf-8"))
        self.parents: dict[ast.AST, ast.AST] = {}
        nodes: list[ast.AST] = [self.tree]
        for node in nodes:  # which grows
            for child in ast.iter_child_nodes(node):
                self.parents[child] = node
                nodes.append(child)
        self.calls = [node for node in self.parents if isinstance(node, ast.Call)]

    def function_of(self, node: ast.AST) -> ast.FunctionDef | None:
        while not isinstance(node, ast.FunctionDef | ast.Module):
            node = self.parents[node]
        return node if isinstance(node, ast.FunctionDef) else None

    def assigned(self, name: str, node: ast.AST) -> list[ast.expr]:
        """The values that `name` may have been given in the function around `node`, or else in the
        module; nothing for a parameter.
        """
        function = self.function_of(node)
        if function is not None:
            if name in {argument.arg for argument in _parameters(function)}:
                return []
            found = _values(ast.walk(function), name)
            if found:
                return found
        return _values(self.tree.body, name)

    def alternatives(self, node: ast.expr, depth: int = 0) -> list[str]:
        """Regular expressions for the texts that an expression may have; `depth` is how often names
        are followed to what was assigned to them.
        """
        match node:
            case ast.Constant(value=str(text)):
                return [re.escape(text)]
            case ast.Constant(value=None):
                return []
            case ast.JoinedStr(values=values):
                return _concatenate([self.alternatives(value, depth - 1) for value in values])
            case ast.FormattedValue(value=ast.Name() as inner, format_spec=None) if depth > 0:
                found = self.alternatives(inner, depth)
                return found if len(found) <= 3 else [_ANY]
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return _concatenate(
                    [self.alternatives(left, depth), self.alternatives(right, depth)]
                )
            case ast.IfExp(body=body, orelse=orelse):
                return self.alternatives(body, depth) + self.alternatives(orelse, depth)
            case ast.Name(id=name) if depth > 0:
                values = self.assigned(name, node)
                if values and all(_is_text(value) for value in values):
                    return [text for value in values for text in self.alternatives(value, depth)]
        return [_ANY]


def _parameters(function: ast.FunctionDef) -> list[ast.arg]:
    named = function.args
    return [*named.posonlyargs, *named.args, *named.kwonlyargs]


def _values(nodes: Iterable[ast.AST], name: str) -> list[ast.expr]:
    return [
        node.value
        for node in nodes
        if isinstance(node, ast.Assign | ast.AnnAssign)
        and node.value is not None
        and name in _names(node)
    ]


def _names(statement: ast.Assign | ast.AnnAssign) -> set[str]:
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _is_text(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value=str(text)):
            return bool(text)
        case ast.Constant(value=None) | ast.JoinedStr():
            return True
        case ast.IfExp(body=body, orelse=orelse):
            return _is_text(body) and _is_text(orelse)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _is_text(left) or _is_text(right)
    return False


def _concatenate(parts: list[list[str]]) -> list[str]:
    found = [""]
    for part in parts:
        found = [head + tail for head in found for tail in (part or [""])]
    return [re.sub(r"(?:\.\*)+", _ANY, text) for text in dict.fromkeys(found)]


def _modules() -> list[_Module]:
    return [_Module(path) for path in sorted(PACKAGE.rglob("*.py"))]


def _error_classes(modules: Iterable[_Module]) -> dict[str, _Builder]:
    """The classes of errors that users may meet, by name."""
    bases = {
        node.name: [ast.unparse(base) for base in node.bases]
        for module in modules
        for node in module.parents
        if isinstance(node, ast.ClassDef)
    }

    def below(name: str, root: str) -> bool:
        return name == root or any(below(base, root) for base in bases.get(name, ()))

    found = {}
    for name in bases:
        if below(name, "CompileError"):
            found[name] = _Builder(name, 0, "message", 2)
        elif below(name, "TileError") or name in ("LineError", "DemoError"):
            found[name] = _Builder(name, 0, "message", 1)
        elif name == "LayoutConflict":  # told by the error that ends the search
            found[name] = _Builder(name, 0, "message")
    found.pop("VerifyError")
    found["UsageError"] = _Builder("UsageError", 0, "message")
    found["located"] = _Builder("RunError", 1, "message", 3)
    return found


def _called(node: ast.Call) -> str | None:
    match node.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return None


def _argument(node: ast.Call, position: int | None, name: str) -> ast.expr | None:
    for keyword in node.keywords:
        if keyword.arg == name:
            return keyword.value
    if position is not None and position < len(node.args):
        return node.args[position]
    return None


def _patterns(module: _Module, node: ast.Call, builder: _Builder) -> tuple[Pattern, ...]:
    message = _argument(node, builder.message, builder.message_name)
    hint = _argument(node, builder.hint, builder.hint_name)
    if message is None:
        return ()
    messages = module.alternatives(message, 1)
    if all(_is_opaque(text) for text in messages):
        messages = module.alternatives(message, 3)
    hints: list[str | None] = [*module.alternatives(hint, 1)] if hint is not None else []
    hints = hints or [None]
    if len(messages) == len(hints):
        return tuple(Pattern(text, tip) for text, tip in zip(messages, hints, strict=True))
    return tuple(Pattern(text, tip) for text in messages for tip in hints)


def _forwarded(module: _Module, node: ast.Call, builder: _Builder) -> tuple[str, _Builder] | None:
    """The function around `node` as a builder, where the message is one of its parameters."""
    function = module.function_of(node)
    message = _argument(node, builder.message, builder.message_name)
    if function is None or not isinstance(message, ast.Name):
        return None
    parameters = [argument.arg for argument in function.args.args]
    keywords = [argument.arg for argument in function.args.kwonlyargs]
    if message.id not in parameters + keywords:
        return None
    offset = 1 if parameters[:1] in (["self"], ["cls"]) else 0
    position = parameters.index(message.id) - offset if message.id in parameters else 99
    hint = parameters.index("hint") - offset if "hint" in parameters else None
    return function.name, _Builder(builder.kind, position, message.id, hint)


@cache
def sites() -> tuple[Site, ...]:
    """Every place of the package that builds an error whose text a user may read."""
    modules = _modules()
    builders = _error_classes(modules)
    builtin = {kind: _Builder(kind, 0, "message") for kind in _BUILTIN}
    forwarding: dict[str, dict[str, _Builder]] = defaultdict(dict)
    found: dict[tuple[str, int], Site] = {}
    grown = True
    while grown:
        grown = False
        for module in modules:
            placed = builtin if module.path.startswith(_PLACED) else {}
            known = {**builders, **placed, **forwarding[module.path]}
            for node in module.calls:
                builder = known.get(_called(node) or "")
                if builder is None:
                    continue
                patterns = _patterns(module, node, builder)
                function = module.function_of(node)
                name = function.name if function else "<module>"
                if patterns and all(pattern.opaque for pattern in patterns):
                    outer = _forwarded(module, node, builder)
                    if outer is not None:
                        if outer[0] not in known:
                            forwarding[module.path][outer[0]] = outer[1]
                            grown = True
                        continue
                place = (module.path, node.lineno)
                found[place] = Site(module.path, node.lineno, name, builder.kind, patterns)
    return tuple(found[place] for place in sorted(found))


@cache
def texts() -> list[str]:
    """What the tests expect, as text."""
    found: list[str] = []
    for path in sorted(TESTS.rglob("*.txt")):
        found += (case.partition("---\n")[2] for case in path.read_text().split("=== "))
    for path in sorted(TESTS.rglob("*.tile")):
        found.append(path.read_text().partition("\n---\n")[2])
    for path in sorted(TESTS.rglob("*.py")):
        if path.parent.name != "architecture":
            found += _strings(ast.parse(path.read_text(encoding="utf-8")))
    return found


def _strings(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            parts = (v.value if isinstance(v, ast.Constant) else _HOLE for v in node.values)
            yield "".join(str(part) for part in parts)


def uncovered(found: Iterable[Site] | None = None) -> list[tuple[Site, Pattern]]:
    """The places (of `found`) whose message stands in no test."""
    expected = texts()
    uses: dict[Pattern, list[Site]] = defaultdict(list)
    for site in sites() if found is None else found:
        for pattern in site.patterns:
            uses[pattern].append(site)
    missing = []
    for pattern, places in uses.items():
        count = 0 if pattern.opaque else len([*islice(_holding(pattern, expected), len(places))])
        missing += [(site, pattern) for site in places[count:]]
    return sorted(missing, key=lambda pair: (pair[0].path, pair[0].line))


def _holding(pattern: Pattern, expected: list[str]) -> Iterator[str]:
    """The texts that the message of `pattern` stands in."""
    parts = (_unescaped(part).strip() for part in pattern.message.split(_ANY))
    literal = max(parts, key=len)
    regex = pattern.regex()
    return (text for text in expected if literal in text and regex.search(text))


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)


def describe(site: Site, pattern: Pattern) -> str:
    """A line of the list of what no test holds."""
    message = _unescaped(pattern.message.replace(_ANY, "…"))
    hint = ""
    if pattern.hint is not None:
        hint = f"  [hint: {_unescaped(pattern.hint.replace(_ANY, '…'))}]"
    return f"{site.path}:{site.line} {site.function}: {site.kind}: {message}{hint}"


if __name__ == "__main__":
    for place, shape in uncovered():
        print(describe(place, shape))
