"""Write a compiled kernel into a folder that needs nothing of this package."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from tileworkbench.compiler.compilation import CompiledKernel
from tileworkbench.compiler.device.gpu import GpuKernel
from tileworkbench.compiler.device.host.kernel import CpuKernel
from tileworkbench.compiler.diagnostics import TileValueError, UnsupportedError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.shipping.gpu import ship_gpu
from tileworkbench.shipping.host import ship_host
from tileworkbench.shipping.manifest import manifest_of

_SHIPPED = Path(__file__).with_name("shipped")
_LOADER = ("errors.py", "formulas.py", "loader.py")  # of every kernel


@dataclass(frozen=True, slots=True)
class Shipment:
    """A folder with a kernel, and the names and bytes of its files."""

    folder: Path
    files: tuple[tuple[str, int], ...]

    def __repr__(self) -> str:
        rows = "".join(f"\n  {name}  {size:,} bytes" for name, size in self.files)
        return f"{self.folder}{rows}"


def ship(kernel: CompiledKernel, folder: str | Path) -> Shipment:
    """Write `kernel` into a new or empty folder, which is then a Python package of its own.

    For a CPU: a shared library, a C header, the C and LLVM texts that it was made of. For a GPU:
    the machine code (a cubin or a code object) and its source, of each variant. Beside them
    `manifest.json` and what loads it: Python modules that need numpy or PyTorch and the vendor's
    driver. `from FOLDER import KERNEL` then gives what is called as the kernel is.

    Raises `TileValueError` for a folder that has files or cannot be written, `UnsupportedError` for
    a target that no machine is (`sim:`, `ptx:`, `emu:`) and for what a shipped kernel cannot do.
    """
    place = Path(folder)
    name = kernel.signature.name
    if not name.isidentifier():
        raise UnsupportedError(
            f"'{name}' is no name that Python can import", hint="give the kernel another name"
        )
    if kernel.target.is_simulated:
        raise UnsupportedError(
            f"target '{kernel.record.target}' is no machine to ship a kernel to",
            hint="compile it for 'cpu', 'cuda:<arch>' or 'hip:<arch>'",
        )
    manifest = manifest_of(kernel)
    _prepare(place)
    try:
        _write(kernel, manifest, place)
    except BaseException:  # half a kernel is none; the folder was empty
        for path in place.iterdir():
            path.unlink()
        raise
    files = sorted(path for path in place.rglob("*") if path.is_file())
    sizes = tuple((str(path.relative_to(place)), path.stat().st_size) for path in files)
    return Shipment(place, sizes)


def _prepare(folder: Path) -> None:
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise TileValueError(
                f"'{folder}' has something in it", hint="ship a kernel into a new or empty folder"
            )
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "manifest.json").touch()
    except OSError as error:
        raise TileValueError(f"'{folder}' cannot be written: {error.strerror}") from None


def _write(kernel: CompiledKernel, manifest: dict[str, Any], folder: Path) -> None:
    for module in _LOADER:
        shutil.copyfile(_SHIPPED / module, folder / module)
    if isinstance(kernel, CpuKernel):
        shutil.copyfile(_SHIPPED / "host.py", folder / "host.py")
        ship_host(kernel, manifest, folder)
        load = "host"
    else:
        assert isinstance(kernel, GpuKernel)
        load = ship_gpu(kernel, manifest, folder)
    text = json.dumps(manifest, indent=1, ensure_ascii=False)
    (folder / "manifest.json").write_text(text + "\n", encoding="utf-8")
    (folder / "__init__.py").write_text(_package(kernel, load), encoding="utf-8")


def _package(kernel: CompiledKernel, load: str) -> str:
    """The module that makes a folder a package."""
    name = kernel.signature.name
    inputs = [spec.name for spec in kernel.signature.binder.parameters if not spec.is_output]
    return f'''"""'{name}' for {kernel.record.target}.

    from FOLDER import {name}
    {name}({", ".join(inputs)})

FOLDER is what this folder is called, somewhere on Python's path. `manifest.json` says what the
arguments are.
"""

from pathlib import Path

from .{load} import load

{name} = load(Path(__file__).parent)
'''
