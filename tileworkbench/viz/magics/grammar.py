"""The grammar of the magics' lines: parsing, help text and completion. No IPython in here."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.machine.tables import ARCHITECTURES
from tileworkbench.viz.magics.layout_line import layout_words, split_layout

# The names of `viz.model.views.VIEWS` (a test compares them) without importing it, for completion.
TABS = (
    *("source", "passes", "layouts", "banks", "global", "smem", "pipeline", "roofline"),
    *("errors", "footprint", "numerics", "prints", "replay", "code"),
)
VIEWS = ("card", *TABS, "diff", "all", "none")
TARGETS = ("auto", "cpu", "sim:sm_80", "ptx:sm_80", "cuda:sm_80")  # as messages name them
_TARGET_HELP = (
    "what to compile for; of a list, a column each. auto: a GPU if there is one, else cpu. cpu, "
    "cpu:avx512, cpu:avx2, cpu:generic: this machine. sim:sm_80: the threads of a GPU, simulated. "
    "ptx:sm_80: its PTX, interpreted. cuda:sm_80: the GPU itself. sm_80 may be any of sm_75 to "
    "sm_120. hip:gfx942: HIP code; sim:gfx942 simulates it, emu:gfx942 runs it here. "
    "'%%tile targets' says what works here"
)
_HEADS = ("auto", "cpu", "cuda", "hip", "sim", "ptx", "emu")

# The names of `viz.model.what_if.NAMES`, for the same reason.
LAYOUTS = ("none", "padding", "swizzle32", "swizzle64", "swizzle128")

# What each command of %tile takes, and what it does.
COMMANDS: dict[str, tuple[str, str]] = {
    "show": ("KERNEL [VIEW [ARGS...]]", f"one view: {', '.join(VIEWS[:-1])}"),
    "bench": ("KERNEL [ARGS...] [--cold]", "measure it on these arguments (default: random ones)"),
    "bisect": ("KERNEL [ARGS...]", "name the first pass that changes a result"),
    "compare": ("KERNEL [KERNEL...]", "side by side; of one kernel, its cell's last two versions"),
    "apply": ("KERNEL TILE LAYOUT", f"a cell with another layout of a tile: {', '.join(LAYOUTS)}"),
    "layout": ("[LAYOUT] [--OPERATION [INPUT]]", "layouts without a kernel; --help: what is read"),
    "ir": ("KERNEL --after PASS", "a cell with its IR, to edit; '%%tile ir' compiles it on"),
    "src": ("KERNEL", "a cell with its code, to edit; '%%tile src' tries it in its own process"),
    "assert": ("KERNEL CONDITIONS...", "fail unless all hold: conflicts==0 smem<=48K mma.m16n8k16"),
    "list": ("", "the kernels of this session"),
    "targets": ("", "every target, and what is usable here"),
    "peaks": ("[--measure]", "this machine's measured ceilings"),
    "examples": ("[NAME]", "the library's kernels; with a name, a cell of one to start from"),
    "course": ("[CHAPTER]", "the chapters; one by number, name or view, beside your notebook"),
    "puzzle": ("[NUMBER]", "the puzzles and what is solved; one of them, with a cell to complete"),
    "hint": ("NUMBER [1|2|3]", "the next hint for a puzzle, or that one"),
    "solution": ("NUMBER", "the solution of a puzzle, in a cell"),
    "clear-cache": ("", "forget compiled kernels, in memory and on disk"),
    "help": ("", "this text"),
}

_CLOSING = {"(": ")", "[": "]", "{": "}"}


class LineError(ValueError):
    """A magic's line that does not parse; the message is what the user should see."""


@dataclass(frozen=True, slots=True)
class CellOptions:
    """The parsed first line of a `%%tile` cell."""

    name: str | None
    defines: tuple[tuple[str, str], ...]
    targets: tuple[str, ...]
    baseline: str | None
    sweep: tuple[tuple[str, str], ...]
    slide: tuple[tuple[str, str], ...]
    show: tuple[str, ...]
    run: str | None
    check: str | None
    args: str | None
    sanitize: bool
    fast_math: bool
    disable: tuple[str, ...]
    rtol: float | None
    atol: float | None
    bench: int | None
    cold: bool
    roofline: bool
    annotate: bool
    count: bool
    output: str | None
    save: str | None
    quiet: bool
    verbose: bool
    help: bool

    @property
    def target(self) -> str | None:
        """The first target, None where none is named."""
        return self.targets[0] if self.targets else None

    @property
    def measures(self) -> bool:
        """Whether the kernel is to be timed."""
        return self.bench is not None or self.roofline or self.cold


class LineParser(argparse.ArgumentParser):
    """Raises `LineError` instead of leaving the process, and names near matches."""

    def error(self, message: str) -> NoReturn:
        unknown = message.removeprefix("unrecognized arguments: ")
        if unknown != message:
            first = unknown.split()[0]
            if not first.startswith("-"):
                raise LineError(f"one kernel name is enough; '{first}' is too many")
            flag, known = first.split("=")[0], list(self._option_string_actions)
            if flag in flags():
                own = ", ".join(known)
                raise LineError(f"'{flag}' is a flag of '%%tile', '{self.prog}' has {own}")
            near = difflib.get_close_matches(flag, known, 1)
            hint = f"did you mean '{near[0]}'?" if near else "see '%tile help'"
            if flag == "--from":  # torch
                hint = "a cell of plain torch code begins with '%%tile torch --args x,w'"
            raise LineError(f"there is no flag '{first}'; {hint}")
        argument, _, rest = message.partition(": ")
        flag = argument.removeprefix("argument ").split("/")[-1]
        if rest.startswith("expected"):
            raise LineError(f"'{flag}' needs a value; one with a dash first is '{flag}=VALUE'")
        raise LineError(f"'{flag}': {rest}" if rest else message)


def cell_parser() -> argparse.ArgumentParser:
    """The flags of `%%tile`."""
    parser = LineParser(
        prog="%%tile",
        usage="%(prog)s [NAME] [flags]",
        add_help=False,
        allow_abbrev=False,
        description="Compile the tile kernels of this cell and show what became of them.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="A function that uses T.Kernel is a kernel with or without @tw.jit. What the cell "
        "defines stays;\n-D names are seen by this cell's code only. Values are Python; those with "
        "spaces are quoted or\nbracketed, those that start with a dash are written '--flag=VALUE'.",
    )
    add = parser.add_argument
    add("name", nargs="?", metavar="NAME", help="the kernel to show (default: the last one)")
    add("-D", "--define", action="append", default=[], metavar="K=V", help="a constant of the cell")
    add("-t", "--target", metavar="TARGET", help=_TARGET_HELP)
    add("--show", metavar="VIEWS", help=f"comma list of {', '.join(VIEWS)}; default card")
    add("--run", metavar="CODE", help="statement to run afterwards, in your namespace")
    add("--check", metavar="REF", help="compare with this callable on random inputs")
    add("--args", metavar="A,B", help="your own inputs for --check, --bench and views that run it")
    checked = "indices that come from data and are outside are errors; --check simulates all"
    add("--sanitize", action="store_true", help=checked)
    faster = "CUDA code takes faster, less exact float32 instructions"
    add("--fast-math", action="store_true", help=faster)
    without = "optional passes to switch off; the Passes view has a box for each"
    add("--disable", metavar="PASS,PASS", help=without)
    add("--rtol", type=tolerance, metavar="X", help="relative tolerance of --check")
    add("--atol", type=tolerance, metavar="X", help="absolute tolerance of --check")
    add("--bench", nargs="?", type=rounds, const=0, metavar="N", help="measure it (N rounds)")
    chilled = "measure it with cold caches: each call finds none of its arguments in them"
    add("--cold", action="store_true", help=chilled)
    add("-a", "--annotate", action="store_true", help="shade each line of the cell by its cost")
    counted = "-a, and what each line moves, counted by running the kernel in a model of the caches"
    add("--count", action="store_true", help=counted)
    add("--roofline", action="store_true", help="measure it and show it under the machine's roofs")
    add("--baseline", metavar="K", help="compare with this kernel, or 'prev': the cell's last one")
    swept = "compile it for all combinations (with --bench: measure them)"
    add("--sweep", nargs="+", action="extend", default=[], metavar="K=V,V", help=swept)
    slid = "sliders on the card; a move compiles the kernel anew"
    add("--slide", nargs="+", action="extend", default=[], metavar="K=V,V", help=slid)
    add("-o", "--output", metavar="VAR", help="bind the kernel to this name")
    add("--save", metavar="FILE", help="write a self-contained HTML page")
    add("-q", "--quiet", action="store_true", help="show nothing")
    add("-v", "--verbose", action="store_true", help="say what is done and how long it took")
    add("-h", "--help", action="store_true", help="this text")
    return parser


def tolerance(text: str) -> float:
    """A number of 0 or more, for argparse."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number") from None
    if not value >= 0:
        raise argparse.ArgumentTypeError(f"a tolerance cannot be {text}")
    return value


def rounds(text: str) -> int:
    """A number of 1 or more, for argparse."""
    if not text.isascii() or not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(
            f"'{text}' is not a number of rounds (the kernel's name goes before the flags)"
        )
    return int(text)


def cell_help() -> str:
    """The help text of `%%tile`."""
    return cell_parser().format_help()


def command_help() -> str:
    """The help text of `%tile`."""
    rows = [(f"%tile {name} {takes}".rstrip(), does) for name, (takes, does) in COMMANDS.items()]
    width = max(len(call) for call, _ in rows) + 2
    return "\n".join(f"{call:<{width}}{does}" for call, does in rows) + "\n"


def parse_cell_line(line: str) -> CellOptions:
    """The options of a `%%tile` line. Raises `LineError`."""
    options = cell_parser().parse_args(split_line(line))
    if options.name is not None and not options.name.isidentifier():
        raise LineError(f"'{options.name}' is not a kernel name")
    show = _views(options.show)
    return CellOptions(
        name=options.name,
        defines=_pairs("-D", options.define),
        targets=_targets(options.target),
        baseline=identifier("--baseline", options.baseline),
        sweep=_pairs("--sweep", options.sweep, "V,V"),
        slide=_pairs("--slide", options.slide, "V,V"),
        show=show,
        run=options.run,
        check=options.check,
        args=options.args,
        sanitize=options.sanitize,
        fast_math=options.fast_math,
        disable=_passes(options.disable),
        rtol=options.rtol,
        atol=options.atol,
        bench=options.bench,
        cold=options.cold,
        roofline=options.roofline or "roofline" in (options.show or ""),  # 'all' measures nothing
        annotate=options.annotate or options.count,
        count=options.count,
        output=identifier("-o", options.output),
        save=options.save,
        quiet=options.quiet,
        verbose=options.verbose,
        help=options.help,
    )


def split_line(line: str) -> list[str]:
    """The words of a line: quotes and brackets hold spaces, and a value's outer quotes are dropped.

    Inner quotes stay, so that `-D dtype="float16"` is the Python string. Raises `LineError`.
    """
    words: list[str] = []
    word, quote, open_ = "", "", [""]
    for place, char in enumerate(line):
        if quote:
            quote = "" if char == quote and line[place - 1] != "\\" else quote
        elif char in "'\"":
            quote = char
        elif char in _CLOSING:
            open_.append(_CLOSING[char])
        elif char == open_[-1]:
            open_.pop()
        elif char.isspace() and len(open_) == 1:
            words, word = [*words, word], ""
            continue
        word += char
    if quote or len(open_) > 1:
        raise LineError(f"the line ends before a closing {quote or open_[-1]}")
    return [_unquoted(word) for word in (*words, word) if word]


def _unquoted(word: str) -> str:
    """`word` without the quotes around it, or around the value of its `--flag=value`."""
    flag = re.match(r"--[a-z]+=", word)
    head, text = (flag.group(), word[flag.end() :]) if flag else ("", word)
    quoted = re.fullmatch(r"""(["'])((?:\\.|(?!\1).)*)\1""", text)
    return head + (quoted.group(2) if quoted else text)


def _pairs(flag: str, texts: list[str], value: str = "VALUE") -> tuple[tuple[str, str], ...]:
    """The names and values of ``NAME=VALUE`` words."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, given = text.partition("=")
        if not equals or not name.isidentifier() or not given.strip():
            raise LineError(f"'{flag} {text}' should read '{flag} NAME={value}'")
        if name in pairs:
            raise LineError(f"'{flag} {name}' is given twice")
        pairs[name] = given
    return tuple(pairs.items())


def identifier(flag: str, name: str | None) -> str | None:
    if name is not None and not name.isidentifier():
        raise LineError(f"'{flag} {name}': '{name}' is not a name")
    return name


def _passes(text: str | None) -> tuple[str, ...]:
    """The passes of a comma list."""
    names = () if text is None else tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    for name in names:
        if not name.isidentifier():
            raise LineError(f"'--disable {text}': '{name}' is not the name of a pass")
    return names


def _targets(text: str | None) -> tuple[str, ...]:
    """The targets of a comma list."""
    names = () if text is None else tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    return tuple(map(_target, names))


def _target(name: str) -> str:
    if name.partition(":")[0] not in (*_HEADS, *ARCHITECTURES):
        raise LineError(f"'{name}' is not a target{near(name, TARGETS)}")
    return name


def _views(text: str | None) -> tuple[str, ...]:
    names = tuple(name.strip() for name in ("card" if text is None else text).split(","))
    for name in names:
        base = name.partition(":")[0]
        if base not in VIEWS:
            raise LineError(f"'{base}' is not a view{near(base, VIEWS)}")
    if "all" in names:
        return ("card", *TABS)
    return tuple(name for name in names if name != "none")


def near(word: str, words: Iterable[str]) -> str:
    """The end of a message about an unknown word: a near match, or all that could be meant."""
    known = list(words)
    matches = difflib.get_close_matches(word, known, 1)
    return f"; did you mean '{matches[0]}'?" if matches else f"; one of {', '.join(known)}"


def parse_command(line: str) -> tuple[str, list[str]]:
    """The command and arguments of a `%tile` line. Raises `LineError`."""
    layout = split_layout(line)
    if layout is not None:
        return "layout", layout
    words = split_line(line)
    if not words or words[0] in ("-h", "--help"):
        return "help", []
    if words[0] not in COMMANDS:
        raise LineError(f"'{words[0]}' is not a %tile command{near(words[0], COMMANDS)}")
    return words[0], words[1:]


@dataclass(frozen=True, slots=True)
class Names:
    """What the user has: `kernels` by name, `starting` any name or attribute of a prefix, the
    `targets` that can be compiled for here, the optional `passes`, and the passes that made a
    kernel, by its name.
    """

    kernels: Callable[[], Iterable[str]]
    starting: Callable[[str], Iterable[str]]
    targets: Callable[[], Iterable[str]]
    passes: Callable[[], Iterable[str]]
    passes_of: Callable[[str], Iterable[str]]


def complete(text: str, names: Names) -> tuple[str, list[str]]:
    """(the part of `text` that is replaced, what it may become).

    `text` is a magic's line up to the cursor.
    """
    magic, *words = text.split(" ")
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if magic == "%tile":
        return _complete_command(words, names)
    if words[0] in ("ir", "src", "puzzle") and len(words) > 1:
        if words[0] == "ir" and len(words) > 2:
            return _complete_after(words, names)
        known = _puzzles() if words[0] == "puzzle" else names.kernels()
        return last, _starting(last, known if len(words) == 2 else [])
    of_torch = words[0] == "torch" and len(words) > 1
    flag, equals, value = last.partition("=")
    if equals and flag.startswith("--"):
        before, last = flag, value
    if before in ("-t", "--target"):
        last = last.rpartition(",")[2]
        return last, _starting(last, names.targets())
    if before == "--show":
        last = last.rpartition(",")[2]
        return last, _starting(last, VIEWS)
    if before == "--baseline":
        return last, _starting(last, ["prev", *names.kernels()])
    if before in ("--args", "--check", "--run", "-D", "--define"):
        return _complete_name(last, names)
    if before == "--disable":
        last = last.rpartition(",")[2]
        return last, _starting(last, names.passes())
    if before in ("-o", "--output", "--save", "--rtol", "--atol", "--bench"):
        return last, []
    if of_torch:
        return last, _starting(last, _torch_flags())
    kernels = names.kernels() if len(words) == 1 and not last.startswith("-") else ()
    return last, _starting(last, [*kernels, *flags()])


def _complete_name(word: str, names: Names) -> tuple[str, list[str]]:
    match = re.search(r"[^\W\d][\w.]*$", word)
    return (match.group(), list(names.starting(match.group()))) if match else (word, [])


def _complete_command(words: list[str], names: Names) -> tuple[str, list[str]]:
    command, last = words[0], words[-1]
    if len(words) == 1:
        return last, _starting(last, COMMANDS)
    if command == "layout":
        return (last, layout_words(last)) if layout_words(last) else _complete_name(last, names)
    if command in _LISTED and len(words) == 2:
        return last, _starting(last, _LISTED[command]())
    if command == "peaks":
        return last, _starting(last, ["--measure"])
    if command == "apply" and len(words) == 4:
        return last, _starting(last, LAYOUTS)
    if command not in ("show", "bench", "bisect", "compare", "apply", "assert", "ir", "src"):
        return last, []
    if len(words) == 2:
        return last, _starting(last, names.kernels())
    if command == "ir":
        return _complete_after(words, names)
    if command != "show":
        return _complete_name(last, names)
    return last, _starting(last, VIEWS[:-1]) if len(words) == 3 else []


def _examples() -> Iterable[str]:
    from tileworkbench.viz.magics.examples import EXAMPLES  # only then: it needs the library

    return EXAMPLES


def _chapters() -> list[str]:
    from tileworkbench.viz.model.chapters import CHAPTERS

    return [name for each in CHAPTERS for name in (each.name[3:], *each.views)]


def _torch_flags() -> list[str]:
    from tileworkbench.viz.magics.forms import form_parser  # which is built on this module

    return flags_of(form_parser("torch"))


def _puzzles() -> list[str]:
    from tileworkbench.puzzles.task import all_tasks  # only then: it reads files

    return list(all_tasks())


# What a command's first word may be, of those that take one of a list.
_LISTED: dict[str, Callable[[], Iterable[str]]] = {
    "examples": _examples,
    "course": _chapters,
    **dict.fromkeys(("puzzle", "hint", "solution"), _puzzles),
}


def _complete_after(words: list[str], names: Names) -> tuple[str, list[str]]:
    """What follows ``ir K``."""
    last, before = words[-1], words[-2]
    after = ["--after"] if "--after" not in words[:-1] else []
    return last, _starting(last, names.passes_of(words[1]) if before == "--after" else after)


def flags() -> list[str]:
    """Every flag of `%%tile`."""
    return flags_of(cell_parser())


def flags_of(parser: argparse.ArgumentParser) -> list[str]:
    """Every flag that a parser takes."""
    actions: list[Any] = parser._actions
    return sorted(flag for action in actions for flag in action.option_strings)


def _starting(prefix: str, words: Iterable[str]) -> list[str]:
    return [word for word in words if word.startswith(prefix)]
