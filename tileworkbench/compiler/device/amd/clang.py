"""HIP C++ to code objects with a clang that knows AMD's GPUs; no GPU and no ROCm is needed.

The compiler is that of the package `ziglang` (the extra `hip`), or of a ROCm installation. What a
kernel takes is read from the metadata that it writes ("AMDGPU user guide", "Code object metadata").
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import tempfile
from pathlib import Path

from tileworkbench.compiler.diagnostics import CompileError, Note, UnsupportedError
from tileworkbench.compiler.fast_dataclass import dataclass

INSTALL = "install it with 'pip install tileworkbench[hip]'"
_MISSING = "no compiler for AMD's GPUs is installed"
# Without ROCm's headers and libraries; memory is read as elements, words and vectors.
_FLAGS = (
    *("-x", "hip", "--cuda-device-only", "--no-gpu-bundle-output", "-nogpuinc", "-nogpulib"),
    *("-fno-strict-aliasing", "-O3", "-w", "-S"),
)
# float32 as `fast_math` has it: denormals are zero; divisions, roots and functions are approximate.
FAST_MATH = (
    *("-fgpu-flush-denormals-to-zero", "-fno-hip-fp32-correctly-rounded-divide-sqrt"),
    "-fapprox-func",
)

Programs = tuple[tuple[str, ...], tuple[str, ...]]


class HipCompileError(CompileError):
    """The compiler refused a HIP source; `log` is all it said."""

    def __init__(self, message: str, log: str) -> None:
        super().__init__(message, notes=tuple(Note(line) for line in log.splitlines() if line))
        self.log = log


@dataclass(frozen=True, slots=True)
class HipResources:
    """What the compiler gave one kernel: registers of a thread (vector registers and those of
    MFMA's results together) and scalar ones of a wave, the bytes of scratch of a thread and how
    many of them are spilled vector registers, shared memory (LDS) of a block.
    """

    name: str
    registers: int
    scalar_registers: int
    stack_bytes: int
    spill_store_bytes: int
    shared_bytes: int
    spill_load_bytes: int = 0
    barriers: int = 1


@dataclass(frozen=True, slots=True)
class HipBuild:
    """One compiled translation unit: the same code as text of the machine's instructions and as a
    code object (ELF) for `arch`.
    """

    arch: str
    assembly: str
    code_object: bytes
    kernels: tuple[HipResources, ...]

    def notes(self) -> list[Note]:
        """Spilled registers."""
        return [
            Note(
                f"'{kernel.name}' needs more than its {kernel.registers} registers: "
                f"{kernel.spill_store_bytes} bytes are spilled to memory"
            )
            for kernel in self.kernels
            if kernel.spill_store_bytes
        ]


def missing_compiler() -> str | None:
    """One sentence saying that there is no compiler here, or None where there is one."""
    return _MISSING if _programs() is None else None


def require_compiler() -> Programs:
    """The compiler and the linker. Raises `UnsupportedError` where there are none."""
    programs = _programs()
    if programs is None:
        raise UnsupportedError(_MISSING, hint=INSTALL)
    return programs


def compile_hip(
    source: str, arch: str, *, name: str = "kernel.hip", options: tuple[str, ...] = ()
) -> HipBuild:
    """Compile HIP C++ for one architecture such as ``gfx942``.

    `name` is the file name that messages use; `options` are further ones of the compiler. Raises
    `HipCompileError` with the log and the offending line, `UnsupportedError` without a compiler and
    for a text that prints.
    """
    programs = require_compiler()
    if "printf(" in source:
        raise UnsupportedError(
            "T.print and T.device_assert need ROCm's device library, which is not here",
            hint=f"simulate the kernel: target 'sim:{arch}'",
        )
    compiler, linker = programs
    with tempfile.TemporaryDirectory() as folder:
        text, listing, unit, linked = (
            Path(folder) / each for each in (name, "kernel.s", "kernel.o", "kernel.co")
        )
        text.write_text(source, encoding="utf-8")
        machine = ("-target", "amdgcn-amd-amdhsa", f"-mcpu={arch}")
        for command in (
            (*compiler, *_FLAGS, *options, f"--offload-arch={arch}", str(text), "-o", str(listing)),
            (*compiler, *machine, "-c", "-x", "assembler", str(listing), "-o", str(unit)),
            (*linker, "-shared", str(unit), "-o", str(linked)),
        ):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise compile_error(source, name, done.stderr.replace(f"{folder}{os.sep}", ""))
        assembly = listing.read_text(encoding="utf-8")
        return HipBuild(arch, assembly, linked.read_bytes(), read_resources(assembly))


def host_compiler() -> tuple[str, ...]:
    """The same clang as a compiler for this machine. Raises `UnsupportedError` without one."""
    (program, *_), _ = require_compiler()
    return (program, "cc") if Path(program).stem == "zig" else (program,)


def compile_error(source: str, name: str, log: str) -> HipCompileError:
    """The error of a failed compilation: the first complaint with the line it is about."""
    match = re.search(rf"^(?:.*/)?{re.escape(name)}:(\d+):\d+: (?:fatal )?error: (.*)$", log, re.M)
    if match is None:
        said = next((line for line in log.splitlines() if "error" in line), "no reason given")
        return HipCompileError(f"'{name}' cannot be compiled: {said}", log)
    number, said = int(match[1]), match[2]
    lines = source.splitlines()
    quoted = lines[number - 1].strip() if 0 < number <= len(lines) else ""
    return HipCompileError(f"'{name}', line {number}: {said} in '{quoted}'", log)


def read_resources(assembly: str) -> tuple[HipResources, ...]:
    """The kernels of the metadata at the end of a listing."""
    _, _, metadata = assembly.rpartition("amdhsa.kernels:")
    kernels = []
    for entry in re.split(r"^  - ", metadata, flags=re.M)[1:]:
        fields = dict(re.findall(r"^ *\.(\w+): +(\S+)$", entry, re.M))
        if "vgpr_count" not in fields:
            continue  # the version
        numbers = {key: int(value) for key, value in fields.items() if value.isdigit()}
        kernels.append(
            HipResources(
                fields["name"],
                numbers["vgpr_count"],
                numbers["sgpr_count"],
                numbers["private_segment_fixed_size"],
                4 * numbers["vgpr_spill_count"],
                numbers["group_segment_fixed_size"],
            )
        )
    return tuple(kernels)


def _programs() -> Programs | None:
    """The commands of the compiler and of the linker, None where there are none."""
    spec = importlib.util.find_spec("ziglang")
    for folder in spec.submodule_search_locations or () if spec is not None else ():
        for program in ("zig", "zig.exe"):
            if (path := Path(folder) / program).is_file():
                return (str(path), "clang"), (str(path), "ld.lld")
    for root in filter(None, (os.environ.get("ROCM_PATH"), "/opt/rocm")):
        tools = Path(root) / "llvm" / "bin"
        if (tools / "clang").is_file():
            return (str(tools / "clang"),), (str(tools / "ld.lld"),)
    return None
