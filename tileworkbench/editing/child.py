"""The process that edited code runs in first: ``python -m tileworkbench.editing.child FOLDER``.

`given` in the folder holds a program, how to compile it, and arguments. `started` appears when the
code is about to run, `reply` when it has: what it returned and its arguments, or an error.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

from tileworkbench.compiler.diagnostics import TileError
from tileworkbench.compiler.driver import compile_program


def run(folder: Path) -> dict[str, Any]:
    """Compile and call; the reply."""
    program, target, source, options, arguments = pickle.loads((folder / "given").read_bytes())
    try:
        compiled = compile_program(program, target, source=source, options=options)
        (folder / "started").touch()
        returned = compiled(*arguments)
    except TileError as error:
        said = [error.message, *(note.message for note in error.notes)]
        return {"error": said, "ran": (folder / "started").exists()}
    return {"returned": returned, "arguments": arguments}


if __name__ == "__main__":
    place = Path(sys.argv[1])
    reply = pickle.dumps(run(place))
    (place / "written").write_bytes(reply)
    (place / "written").rename(place / "reply")  # whole, or not there
