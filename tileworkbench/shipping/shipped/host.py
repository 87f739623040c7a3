"""A kernel in a shared library beside this file."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .errors import DeviceUnavailableError, RunError
from .loader import Call, Kernel, grid_of, read_manifest

_NO_MEMORY = -1


class HostLauncher:
    """Runs a kernel on this processor. `threads` is how many threads a call may use; 0 is torch's
    number where torch is loaded, else one for each core that the process may use.
    """

    memory = "cpu"

    def __init__(self, folder: Path, manifest: Mapping[str, Any]) -> None:
        self.threads = 0
        self._kernel, self._grids = manifest["name"], manifest["grids"]
        name, loaded = manifest["symbol"], ctypes.CDLL(str(folder / manifest["library"]))
        self._call = getattr(loaded, f"tile_{name}_call")
        self._call.argtypes = [ctypes.c_void_p, ctypes.c_int]
        self._message = getattr(loaded, f"tile_{name}_message")
        self._message.argtypes, self._message.restype = [ctypes.c_int], ctypes.c_char_p
        lacks = getattr(loaded, f"tile_{name}_lacks")
        lacks.restype = ctypes.c_char_p
        missing = lacks()
        if missing:
            raise DeviceUnavailableError(
                f"the library needs a processor with '{missing.decode()}', and this one has none",
                "ship the kernel for less: targets 'cpu:avx2' and 'cpu:generic'",
            )

    def launch(self, call: Call) -> None:
        """Run the kernel. Raises `ArgumentError` for an empty grid, `MemoryError`, and `RunError`
        for an assertion that fails.
        """
        for grid in self._grids:
            grid_of(self._kernel, grid, call.numbers)
        slots = (ctypes.c_int64 * len(call.slots))(*call.slots)
        torch = sys.modules.get("torch")
        threads = self.threads or (torch.get_num_threads() if torch is not None else 0)
        status = self._call(slots, threads)
        if not status:
            return
        message = self._message(status).decode()
        raise MemoryError(message) if status == _NO_MEMORY else RunError(message)


def load(folder: Path) -> Kernel:
    """The kernel of a folder."""
    manifest = read_manifest(folder)
    return Kernel(manifest, HostLauncher(folder, manifest))
