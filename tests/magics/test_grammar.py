"""The lines of the magics, without a shell."""

from __future__ import annotations

import pytest

from tileworkbench.viz.magics.grammar import (
    COMMANDS,
    TABS,
    CellOptions,
    LineError,
    Names,
    complete,
    parse_cell_line,
    parse_command,
    split_line,
)

NOTHING = CellOptions(
    name=None,
    defines=(),
    targets=(),
    baseline=None,
    sweep=(),
    slide=(),
    show=("card",),
    run=None,
    check=None,
    args=None,
    sanitize=False,
    fast_math=False,
    disable=(),
    rtol=None,
    atol=None,
    bench=None,
    cold=False,
    roofline=False,
    annotate=False,
    count=False,
    output=None,
    save=None,
    quiet=False,
    verbose=False,
    help=False,
)


def changed(line: str) -> dict[str, object]:
    """The options of a line that differ from those of an empty one."""
    found = parse_cell_line(line)
    names = CellOptions.__dataclass_fields__
    return {n: getattr(found, n) for n in names if getattr(found, n) != getattr(NOTHING, n)}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", {}),
        ("mm", {"name": "mm"}),
        ("größe", {"name": "größe"}),
        ("-D M=4 --define N=M*2", {"defines": (("M", "4"), ("N", "M*2"))}),
        ("-DM=4", {"defines": (("M", "4"),)}),
        ("-D eq=a==b", {"defines": (("eq", "a==b"),)}),
        ('-D kind="float16"', {"defines": (("kind", '"float16"'),)}),
        ("-D 'M=a + b'", {"defines": (("M", "a + b"),)}),
        ("-D shape=(4, 8) mm", {"defines": (("shape", "(4, 8)"),), "name": "mm"}),
        ("-D d={'a': 1}", {"defines": (("d", "{'a': 1}"),)}),
        ("-t cpu:avx2", {"targets": ("cpu:avx2",)}),
        ("--check f --args a,(b, 1)", {"check": "f", "args": "a,(b, 1)"}),
        ("--sanitize", {"sanitize": True}),
        ("--fast-math", {"fast_math": True}),
        ("--disable fuse_loops,a", {"disable": ("fuse_loops", "a")}),
        ("--target=sm_80", {"targets": ("sm_80",)}),
        ("-t cpu,sim:sm_80,cpu", {"targets": ("cpu", "sim:sm_80")}),
        (
            "mm --sweep block_M=64,128 block_K=16 -q",
            {"name": "mm", "sweep": (("block_M", "64,128"), ("block_K", "16")), "quiet": True},
        ),
        ("--slide block_K=16,32", {"slide": (("block_K", "16,32"),)}),
        ("--slide a=1,2 --slide b=3,4", {"slide": (("a", "1,2"), ("b", "3,4"))}),
        ("--sweep a=1,2 --sweep b=3,4", {"sweep": (("a", "1,2"), ("b", "3,4"))}),
        ("-a", {"annotate": True}),
        ("--baseline prev", {"baseline": "prev"}),
        ("--show passes,layouts", {"show": ("passes", "layouts")}),
        ("--show=passes:plan_scratch", {"show": ("passes:plan_scratch",)}),
        ("--show all", {"show": ("card", *TABS)}),
        ("--show none", {"show": ()}),
        ("--show roofline", {"show": ("roofline",), "roofline": True}),
        ('--run "C = mm(A, B)"', {"run": "C = mm(A, B)"}),
        ("--run C=mm(A, B)", {"run": "C=mm(A, B)"}),
        ("--run='print(\"it\\'s\")'", {"run": 'print("it\\\'s")'}),
        ("--check ref --rtol 1e-3 --atol=0", {"check": "ref", "rtol": 1e-3, "atol": 0.0}),
        ("--check=-x", {"check": "-x"}),
        ("--bench", {"bench": 0}),
        ("--bench 5", {"bench": 5}),
        ("--bench 5 --cold", {"bench": 5, "cold": True}),
        ("mm --bench -o k", {"name": "mm", "bench": 0, "output": "k"}),
        ("--roofline", {"roofline": True}),
        ("--save 'a b.html'", {"save": "a b.html"}),
        ("-q -v -h", {"quiet": True, "verbose": True, "help": True}),
        ("  -q   mm  ", {"quiet": True, "name": "mm"}),
    ],
)
def test_lines(line: str, expected: dict[str, object]) -> None:
    assert changed(line) == expected


def test_measuring() -> None:
    assert not parse_cell_line("").measures
    assert parse_cell_line("--bench").measures and parse_cell_line("--roofline").measures
    assert parse_cell_line("--cold").measures


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("a  b\tc", ["a", "b", "c"]),
        ("'a b' \"c d\"", ["a b", "c d"]),
        ("f('a b', [1, 2]) x", ["f('a b', [1, 2])", "x"]),
        ("'a' + 'b'", ["a", "+", "b"]),
        ("'a'+'b'", ["'a'+'b'"]),
        ("x)y", ["x)y"]),
        ("C:\\path", ["C:\\path"]),
        ("", []),
    ],
)
def test_words(line: str, words: list[str]) -> None:
    assert split_line(line) == words


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", ("help", [])),
        ("-h", ("help", [])),
        ("show mm passes", ("show", ["mm", "passes"])),
        ("bench mm f(A, 2)", ("bench", ["mm", "f(A, 2)"])),
        ("layout", ("layout", [""])),
        ("layout (4, 8) --compose 'a  b'", ("layout", ["(4, 8)", "compose", "'a  b'"])),
        ("layout a --b --inverse", ("layout", ["a", "b", "--inverse"])),
        ("layout x(--y)", ("layout", ["x(--y)"])),
    ],
)
def test_commands(line: str, expected: tuple[str, list[str]]) -> None:
    assert parse_command(line) == expected


def test_an_unknown_command() -> None:
    with pytest.raises(LineError, match=r"^'sow' is not a %tile command; did you mean 'show'\?$"):
        parse_command("sow mm")


NAMES = Names(
    lambda: ["mm", "mv"],
    lambda text: [n for n in ("ref", "mm") if n.startswith(text)],
    lambda: ["auto", "cpu", "cpu:avx2", "cpu:avx512", "sim:sm_80"],
    lambda: ["fuse_loops", "plan_pipelines"],
    lambda name: ["infer_layouts", "lower_copy"] if name == "mm" else [],
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%%tile m", ("m", ["mm", "mv"])),
        ("%%tile mm m", ("m", [])),
        ("%%tile --check r", ("r", ["ref"])),
        ("%%tile --args r", ("r", ["ref"])),
        ("%%tile --check ", ("", [])),
        ("%%tile -D X=3*r", ("r", ["ref"])),
        ("%%tile -D X=3", ("X=3", [])),
        ("%%tile -o r", ("r", [])),
        ("%%tile --show card,pas", ("pas", ["passes"])),
        ("%%tile --show=pas", ("pas", ["passes"])),
        ("%%tile -q --qu", ("--qu", ["--quiet"])),
        ("%%tile ir m", ("m", ["mm", "mv"])),
        ("%%tile src mm ", ("", [])),
        ("%%tile ir mm ", ("", ["--after"])),
        ("%%tile ir mm --after lo", ("lo", ["lower_copy"])),
        ("%tile ir mm --after ", ("", ["infer_layouts", "lower_copy"])),
        ("%tile ir mm --after infer_layouts ", ("", [])),
        ("%tile src m", ("m", ["mm", "mv"])),
        ("%%tile --disable fuse_loops,p", ("p", ["plan_pipelines"])),
        ("%tile list ", ("", [])),
        ("%tile show m", ("m", ["mm", "mv"])),
        ("%tile show mm la", ("la", ["layouts"])),
        ("%tile show mm layouts x", ("x", [])),
        ("%tile bench mm r", ("r", ["ref"])),
        ("%tile ", ("", list(COMMANDS))),
        ("%tile layout ldm", ("ldm", ["ldmatrix.x4", "ldmatrix.x2", "ldmatrix.x1"])),
        ("%tile layout (4,8) --bl", ("--bl", ["--blocked_product"])),
        ("%tile layout re", ("re", ["ref"])),
    ],
)
def test_completion(text: str, expected: tuple[str, list[str]]) -> None:
    assert complete(text, NAMES) == expected
