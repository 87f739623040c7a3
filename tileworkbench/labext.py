"""The JupyterLab extension of a checkout: `install` copies it to where JupyterLab looks.

A wheel brings the extension along (``shared-data`` in `pyproject.toml`), and so does an editable
install, as copies that go stale with the first change. Links would not do: Jupyter's server follows
none out of an extension's folder, and pip would write through them into the checkout.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

NAME = "@tileworkbench/labext"

_ROOT = Path(__file__).parents[1]
# As in pyproject.toml: where a folder's files are in the extension.
_FOLDERS = {"extensions/labext": "", "tileworkbench/viz/static": "static/views"}


def install(folder: Path | None = None) -> Path:
    """Copy the extension's files to `folder`, an environment's ``labextensions``; returns where.

    Raises:
        FileNotFoundError: the package is not that of a checkout.
    """
    if not (_ROOT / "extensions" / "labext").is_dir():
        raise FileNotFoundError(
            f"'{_ROOT}' is no checkout of tileworkbench: an installed package has its extension"
        )
    target = (folder or Path(sys.prefix, "share", "jupyter", "labextensions")) / NAME
    shutil.rmtree(target, ignore_errors=True)
    for source, inside in _FOLDERS.items():
        shutil.copytree(_ROOT / source, target / inside, dirs_exist_ok=True)
    return target
