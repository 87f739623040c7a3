"""The lines of cells that hold no kernel: what became of one, `%%tile ir` and `%%tile src`, plain
torch code that becomes kernels, `%%tile torch`, or the answer to a puzzle."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.viz.magics.grammar import (
    LineError,
    LineParser,
    identifier,
    rounds,
    split_line,
    tolerance,
)

FORMS = {
    "torch": "a function of torch operations; its groups of operations become kernels to read",
    "puzzle": "an answer to a puzzle; it is run in the simulator and compared, and must end",
    "ir": "the IR of a kernel after a pass, edited; it is compiled from there on",
    "src": "the generated code of a kernel, edited; it runs in a process of its own first",
}
SECONDS = 10.0  # of a run in a process of its own


@dataclass(frozen=True, slots=True)
class EditOptions:
    """The parsed first line of such a cell. `seconds` limit the run of edited code."""

    form: str
    name: str
    after: str | None
    args: str | None
    seconds: float
    output: str | None
    quiet: bool
    help: bool = False


@dataclass(frozen=True, slots=True)
class TorchOptions:
    """The parsed first line of a cell with plain torch code."""

    name: str | None
    args: str
    target: str | None
    rtol: float | None
    atol: float | None
    bench: int | None
    keep_slower: bool
    output: str | None
    quiet: bool


def form_of(line: str) -> str | None:
    """The form that a line begins with; None for a cell with a kernel of its own."""
    word = line.split(maxsplit=1)[0] if line.strip() else ""
    return word if word in FORMS else None


def parse_edit(line: str) -> EditOptions:
    """The options of a line that begins with a form. Raises `LineError`."""
    form, *words = split_line(line)
    parser = form_parser(form)
    options = parser.parse_args(words)
    if options.help:
        return EditOptions(form, options.name or "", None, None, SECONDS, None, True, help=True)
    if options.name is None:
        raise LineError(f"which kernel? '%%tile {form} NAME'")
    identifier("NAME", options.name)
    if form == "ir" and options.after is None:
        raise LineError(f"after which pass? '%%tile ir {options.name} --after PASS'")
    return EditOptions(
        form,
        options.name,
        options.after if form == "ir" else None,
        getattr(options, "args", None),
        getattr(options, "seconds", SECONDS),
        identifier("-o", options.output),
        options.quiet,
    )


def parse_torch(line: str) -> TorchOptions | None:
    """The options of a cell with plain torch code; None where help is asked for. Raises
    `LineError`.
    """
    form, *words = split_line(line)
    options = form_parser(form).parse_args(words)
    if options.help:
        return None
    if options.args is None:
        raise LineError(
            "for which inputs? '%%tile torch --args x,w' names them, or makes them: "
            "'--args torch.randn(64,64)'"
        )
    return TorchOptions(
        identifier("NAME", options.name),
        options.args,
        options.target,
        options.rtol,
        options.atol,
        options.bench,
        options.keep_slower,
        identifier("-o", options.output),
        options.quiet,
    )


def parse_puzzle(line: str) -> str | None:
    """The number of the puzzle that a cell answers; None where help is asked for. Raises
    `LineError`.
    """
    form, *words = split_line(line)
    options = form_parser(form).parse_args(words)
    if options.help:
        return None
    if options.number is None:
        raise LineError("which puzzle? '%%tile puzzle 03'; '%tile puzzle' lists them")
    return str(options.number)


def form_parser(form: str) -> argparse.ArgumentParser:
    """The flags of a form."""
    parser = LineParser(
        prog=f"%%tile {form}", add_help=False, allow_abbrev=False, description=FORMS[form]
    )
    add = parser.add_argument
    if form == "puzzle":
        add("number", nargs="?", metavar="NUMBER", help="of the puzzle: '%%tile puzzle' lists them")
        add("-h", "--help", action="store_true", help="show this text")
        return parser
    if form == "torch":
        _add_torch(add)
        return parser
    add("name", nargs="?", metavar="NAME", help="the kernel")
    if form == "ir":
        add("--after", metavar="PASS", help="the pass, or its number; 0 is the front end")
    else:
        add("--args", metavar="A,B", help="inputs of the run (default: random ones)")
        add("--seconds", type=_seconds, default=SECONDS, metavar="S", help="limit of the run")
    add("-o", "--output", metavar="VAR", help="bind the kernel to this name")
    add("-q", "--quiet", action="store_true", help="show nothing")
    add("-h", "--help", action="store_true", help="show this text")
    return parser


def _add_torch(add: Callable[..., Any]) -> None:
    """The flags of a cell with plain torch code."""
    add("name", nargs="?", metavar="NAME", help="the function or module (default: the last)")
    add("--args", metavar="A,B", help="its inputs: they say shapes and dtypes")
    add("-t", "--target", metavar="TARGET", help="cpu, sim:... or ptx:...; default cpu")
    add("--rtol", type=tolerance, metavar="X", help="relative tolerance of the check")
    add("--atol", type=tolerance, metavar="X", help="absolute tolerance of the check")
    measured = "measure it in turns with torch (N rounds)"
    add("--bench", nargs="?", type=rounds, const=0, metavar="N", help=measured)
    add("--keep-slower", action="store_true", help="keep kernels that torch is faster than")
    add("-o", "--output", metavar="VAR", help="bind it to this name (default: its own)")
    add("-q", "--quiet", action="store_true", help="show nothing")
    add("-h", "--help", action="store_true", help="show this text")


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds")
    return value


def form_help(*forms: str) -> str:
    """The help text of these forms, of all by default."""
    return "\n".join(form_parser(form).format_help() for form in forms or FORMS)
