"""HIP text executed on this machine's processor: a second route beside the simulator.

The very text that a GPU would get is built as a program with `emulator.h`, which gives it threads,
waves and MFMA, and runs in a process of its own: memory outside of tensors is not mapped, so that
what touches it ends the program, not Python.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import weakref
from pathlib import Path
from typing import Any

from tileworkbench.compiler.device.amd.clang import HipCompileError, host_compiler
from tileworkbench.compiler.device.gpu import Call, Device, GpuKernel, Loaded, buffer_bytes
from tileworkbench.compiler.diagnostics import RunError, UnsupportedError
from tileworkbench.compiler.emit.c_like.program import Module
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.simt import TensorMap

_SHIM = Path(__file__).with_name("emulator.h")
_FLAGS = (
    *("-x", "c++", "-std=c++17", "-O1", "-w", "-fno-strict-aliasing", "-ffp-contract=off"),
    "-ftrivial-auto-var-init=pattern",  # registers begin as bytes 0xAA, or NaN
)
_MOST_SECONDS = 120


class EmulatedDevice(Device):
    """There wherever a clang is."""

    def open(self) -> None:
        host_compiler()

    def load(self, kernel: GpuKernel) -> Loaded:
        return _Emulation(kernel)


@dataclass(eq=False)
class _Emulation:
    kernel: GpuKernel
    folder: Path | None = None

    def launch(self, call: Call) -> None:
        """Run all launches in one process. Raises `RunError` where it ends badly."""
        name, module = self.kernel.record.name, self.kernel.module
        arguments = self._arguments(call)
        done = subprocess.run(
            [str(self._program())],
            input=_message(module, call, arguments),
            capture_output=True,
            check=False,
            timeout=_MOST_SECONDS,
        )
        whole = sum(map(len, arguments)) if done.returncode == 0 else 0
        at = len(done.stdout) - whole  # what is printed stands in front of the results
        print(done.stdout[:at].decode(errors="replace"), end="")
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip() or f"status {done.returncode}"
            raise RunError(f"'{name}' failed on emulated threads: {said}")
        for memory in arguments:
            if not isinstance(memory, bytes):
                memory[:] = _bytes(done.stdout[at : at + len(memory)])
            at += len(memory)

    def _program(self) -> Path:
        """The program, built at the first call."""
        if self.folder is None:
            folder = Path(tempfile.mkdtemp(prefix="tileworkbench-"))
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            build_program(self.kernel.module, self.kernel.target.arch, folder)
            self.folder = folder
        return self.folder / "kernel"

    def _arguments(self, call: Call) -> list[Any]:
        """Tensors as arrays over their memory, numbers as eight bytes."""
        import ctypes

        import numpy as np

        module, numbers = self.kernel.module, call.numbers
        specs = self.kernel.signature.binder.parameters
        slots = {spec.name: slot for spec, slot in zip(specs, call.bound.slots, strict=False)}
        values: list[Any] = []
        for argument in module.arguments:
            assert not isinstance(argument, TensorMap), "no passes make one for these machines"
            if not isinstance(argument, Buffer):
                number = numbers[argument.name] & ((1 << 64) - 1)
                values.append(number.to_bytes(8, "little"))
                continue
            size = buffer_bytes(argument, numbers)
            if argument in module.workspaces:
                values.append(np.zeros(size, np.uint8))
            else:
                address = slots[argument.name]
                memory = (ctypes.c_uint8 * (size if address else 0)).from_address(address)
                values.append(np.ctypeslib.as_array(memory))
        return values


# A function that is an instruction, by the compiler's own name of it.
_LOAD = re.compile(r'\n  __asm\("llvm\.amdgcn\.raw\.buffer\.load\.v\d[if]32"\);')
_LOADED = " {\n  return emu::buffer_load((const unsigned*)&tensor, more, at);\n}"
# Inline assembly: its text, what it takes, and what it changes.
_ASSEMBLY = re.compile(r'asm volatile\(("[^"]*")\s*: :((?: "[^"]+"\(\w+\),?)*) :[^;]*;')


def _assembly(call: re.Match[str]) -> str:
    """A call of what executes assembly."""
    taken = re.findall(r"\((\w+)\)", call[2])
    values = [call[1], *(f"emu::Operand({name})" for name in taken)]
    return f"emu::assembly({', '.join(values)});"


def build_program(module: Module, arch: str, folder: Path) -> None:
    """The file ``kernel`` in `folder`. Raises `HipCompileError`, `UnsupportedError`."""
    if any(launch.cooperative for launch in module.launches):
        raise UnsupportedError(
            "blocks that wait for each other are not emulated: they run one after the other",
            hint=f"simulate the kernel: target 'sim:{arch}'",
        )
    entries = ", ".join(f"[] {{ emu::call({launch.entry}); }}" for launch in module.launches)
    executed = _LOAD.sub(_LOADED, _ASSEMBLY.sub(_assembly, module.text))
    text = (
        f'{"#define EMU_OCP" if arch == "gfx950" else ""}\n#include "{_SHIM}"\n'
        f"{executed}\nint main() {{\n"
        f"  static void (*const kernels[])() = {{{entries}}};\n"
        "  return emu::run(kernels);\n}\n"
    )
    source = folder / "kernel.cpp"
    source.write_text(text, encoding="utf-8")
    command = [*host_compiler(), *_FLAGS, str(source), "-o", str(folder / "kernel"), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        line = next((each for each in done.stderr.splitlines() if "error" in each), "no reason")
        raise HipCompileError(f"the text cannot be built for this machine: {line}", done.stderr)


def _message(module: Module, call: Call, arguments: list[Any]) -> bytes:
    """What the program reads: arguments, each behind its size, then extents and threads."""
    parts = [_number(len(arguments))]
    for value in arguments:
        parts += [_number(len(value)), value if isinstance(value, bytes) else value.tobytes()]
    parts.append(_number(len(module.launches)))
    for launch, grid in zip(module.launches, call.grids, strict=True):
        parts += [*map(_number, grid), _number(launch.threads)]
    return b"".join(parts)


def _number(value: int) -> bytes:
    return value.to_bytes(8, "little")


def _bytes(data: bytes) -> Any:
    import numpy as np

    return np.frombuffer(data, np.uint8)
