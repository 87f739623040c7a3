"""The page of magics and flags, from the grammar that `%%tile?` and `%tile help` print."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from docs import markdown
from tileworkbench.viz.magics.forms import form_help
from tileworkbench.viz.magics.grammar import COMMANDS, VIEWS, cell_parser


def pages() -> Iterator[tuple[str, str]]:
    parser = cell_parser()
    yield (
        "magics.md",
        markdown.page(
            "# Magics and flags",
            "`%load_ext tileworkbench` makes them known, and `tw` and `T` with them.",
            "## `%%tile`",
            parser.description or "",
            markdown.fenced("%%tile [NAME] [flags]", "text"),
            markdown.table(("flag", "what it does"), [_flag(each) for each in parser._actions]),
            (parser.epilog or "").replace("\n", " "),
            f"Views, for `--show`: {', '.join(f'`{view}`' for view in VIEWS)}.",
            "## `%tile`",
            markdown.table(
                ("command", "what it does"),
                [
                    (f"`{f'%tile {name} {takes}'.rstrip()}`", does)
                    for name, (takes, does) in COMMANDS.items()
                ],
            ),
            "## Other cells",
            markdown.fenced(form_help(), "text"),
        ),
    )


def _flag(action: argparse.Action) -> tuple[str, str]:
    value = f" {action.metavar}" if action.metavar else ""
    if action.nargs == "?":
        value = f" [{action.metavar}]"
    *short, long = action.option_strings or [""]
    names = ", ".join(f"`{name}`" for name in [*short, f"{long}{value}".strip()])
    return names, (action.help or "").replace("%%", "%")
