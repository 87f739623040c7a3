"""The grammar of the magics' lines: parsing, help text and completion. No IPython in here."""

from __future__ import annotations

import argparse
import difflib
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

VIEWS = ("card", "source", "passes", "diff", "layouts", "code", "roofline", "all", "none")
COMMANDS = (
    "bench",
    "bisect",
    "clear-cache",
    "examples",
    "help",
    "list",
    "peaks",
    "show",
    "targets",
)
TARGETS = ("auto", "cpu", "cpu:avx512", "cpu:avx2", "cpu:generic")


class LineError(ValueError):
    """A magic's line that does not parse; the message is what the user should see."""


@dataclass(frozen=True, slots=True)
class CellOptions:
    """The parsed first line of a `%%tile` cell."""

    name: str | None
    defines: tuple[tuple[str, str], ...]
    target: str | None
    show: tuple[str, ...]
    run: str | None
    check: str | None
    rtol: float | None
    atol: float | None
    bench: int | None
    roofline: bool
    output: str | None
    save: str | None
    quiet: bool
    verbose: bool
    help: bool


class _Parser(argparse.ArgumentParser):
    """Raises `LineError` instead of leaving the process, and names near matches."""

    def error(self, message: str) -> NoReturn:
        unknown = message.removeprefix("unrecognized arguments: ")
        if unknown != message:
            first = unknown.split()[0]
            flags = [flag for action in self._actions for flag in action.option_strings]
            near = difflib.get_close_matches(first.split("=")[0], flags, 1)
            hint = f"; did you mean '{near[0]}'?" if near else "; see %tile help"
            raise LineError(f"unknown argument '{first}'{hint}")
        if "expected one argument" in message or "expected at least one" in message:
            flag = message.split(":")[0].removeprefix("argument ").split("/")[-1]
            raise LineError(
                f"'{flag}' needs a value; write '{flag}=VALUE' if it starts with a dash"
            )
        raise LineError(message)


def cell_parser() -> argparse.ArgumentParser:
    """The flags of `%%tile`."""
    parser = _Parser(
        prog="%%tile",
        add_help=False,
        allow_abbrev=False,
        description="Compile the tile kernels of this cell and show what became of them.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Values that start with a dash are written '--flag=value'. All names the cell "
        "defines\nare bound as usual; -D names are seen by this cell's functions only.",
    )
    add = parser.add_argument
    add("name", nargs="?", metavar="NAME", help="the kernel to show (default: the last one)")
    add("-D", "--define", action="append", default=[], metavar="K=V", help="compile-time constant")
    add("-t", "--target", metavar="TARGET", help="what to compile for: auto, cpu, cpu:avx2, ...")
    add("--show", metavar="VIEWS", help=f"comma list of {', '.join(VIEWS)}; default card")
    add("--run", metavar="CALL", help="statement to run afterwards, in your namespace")
    add("--check", metavar="REF", help="compare with this callable on random inputs")
    add("--rtol", type=float, metavar="X", help="relative tolerance of --check")
    add("--atol", type=float, metavar="X", help="absolute tolerance of --check")
    add("--bench", nargs="?", type=int, const=0, metavar="N", help="measure (N rounds)")
    add("--roofline", action="store_true", help="measure, and show it under the machine's roofs")
    add("-o", "--output", metavar="VAR", help="bind the kernel object to this name")
    add("--save", metavar="FILE", help="write a self-contained HTML page")
    add("-q", "--quiet", action="store_true", help="show nothing")
    add("-v", "--verbose", action="store_true", help="say what is done and how long it took")
    add("-h", "--help", action="store_true", help="this text")
    return parser


def parse_cell_line(line: str) -> CellOptions:
    """The options of a `%%tile` line. Raises `LineError`."""
    found = cell_parser().parse_args(_split(line))
    if found.name is not None and not found.name.isidentifier():
        raise LineError(f"'{found.name}' is not a kernel name")
    return CellOptions(
        found.name,
        tuple(_define(text) for text in found.define),
        found.target,
        _views(found.show),
        found.run,
        found.check,
        found.rtol,
        found.atol,
        found.bench,
        found.roofline,
        _identifier("-o", found.output),
        found.save,
        found.quiet,
        found.verbose,
        found.help,
    )


def _split(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as error:
        raise LineError(f"the line does not parse: {str(error).lower()}") from None


def _define(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier() or not value.strip():
        raise LineError(f"'-D {text}' should read '-D NAME=VALUE'")
    return name, value


def _identifier(flag: str, name: str | None) -> str | None:
    if name is not None and not name.isidentifier():
        raise LineError(f"'{flag} {name}': '{name}' is not a name")
    return name


def _views(text: str | None) -> tuple[str, ...]:
    names = tuple((text or "card").split(","))
    for name in names:
        base = name.split(":")[0]
        if base not in VIEWS:
            raise LineError(f"'{base}' is not a view{_near(base, VIEWS)}")
    if "all" in names:
        return ("card", "passes", "layouts", "code")
    return tuple(name for name in names if name != "none")


def _near(word: str, words: Iterable[str]) -> str:
    found = difflib.get_close_matches(word, list(words), 1)
    return f"; did you mean '{found[0]}'?" if found else f"; one of {', '.join(words)}"


def parse_command(line: str) -> tuple[str, list[str]]:
    """The command and arguments of a `%tile` line. Raises `LineError`."""
    words = _split(line)
    if not words or words[0] in ("-h", "--help"):
        return "help", []
    if words[0] not in COMMANDS:
        raise LineError(f"'{words[0]}' is not a %tile command{_near(words[0], COMMANDS)}")
    return words[0], words[1:]


def complete(line: str, kernels: Iterable[str]) -> list[str]:
    """What may follow at the end of a magic's line (the text up to the cursor).

    `kernels` are the names of kernels that the user has.
    """
    magic, _, rest = line.partition(" ")
    words = rest.split(" ")
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if magic == "%tile":
        if len(words) == 1:
            return _starting(last, COMMANDS)
        if words[0] == "show" and len(words) > 2:
            return _starting(last, VIEWS[:-2])
        return _starting(last, kernels)
    if before in ("-t", "--target"):
        return _starting(last, TARGETS)
    if before == "--show" or last.startswith("--show="):
        head, _, tail = last.rpartition(",") if "," in last else last.rpartition("=")
        separator = "," if "," in last else "=" if "=" in last else ""
        return [f"{head}{separator}{view}" for view in _starting(tail, VIEWS)]
    if last.startswith("-"):
        return _starting(last, _flags())
    return _starting(last, kernels) if len(words) == 1 else []


def _flags() -> list[str]:
    actions: list[Any] = cell_parser()._actions
    return sorted(flag for action in actions for flag in action.option_strings)


def _starting(prefix: str, words: Iterable[str]) -> list[str]:
    return [word for word in words if word.startswith(prefix)]
