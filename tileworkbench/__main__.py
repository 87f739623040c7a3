"""``python -m tileworkbench labext``: bring the JupyterLab extension of a checkout up to date."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from tileworkbench.labext import install


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command."""
    parser = argparse.ArgumentParser(prog="python -m tileworkbench")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    labext = commands.add_parser("labext", help="copy a checkout's JupyterLab extension")
    labext.add_argument(
        "folder",
        nargs="?",
        type=Path,
        help="a folder of extensions (default: this environment's)",
    )
    options = parser.parse_args(arguments)
    try:
        print(install(options.folder))
    except FileNotFoundError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
