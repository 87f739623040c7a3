"""A CPU kernel as a shared library with a C interface."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tileworkbench.compiler.analysis.names import ascii_name
from tileworkbench.compiler.device.host import processor
from tileworkbench.compiler.device.host.dispatch import is_posix
from tileworkbench.compiler.device.host.dispatch_ir import (
    POOL_BYTES,
    QUEUE_BYTES,
    SLOTS_WORD,
    dispatch_ir,
)
from tileworkbench.compiler.device.host.kernel import CpuKernel
from tileworkbench.compiler.device.host.llvm import (
    NativeTarget,
    compile_object,
    native_target,
    support_object,
)
from tileworkbench.compiler.diagnostics import OUT_OF_RANGE, UnsupportedError
from tileworkbench.compiler.emit.llvm.text import without_lines
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.stmt import ExternCall
from tileworkbench.shipping.cpuid import features_text
from tileworkbench.shipping.formulas import HELPERS, c_text, formula_of

_COMPILERS = ("cc", "gcc", "clang")
_C_TYPES = {
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    **{"bool": "bool", "float32": "float", "tfloat32": "float", "float64": "double"},
}
# What C has no type for is passed as the bits of an element.
_BITS_TYPES = {8: "uint8_t", 16: "uint16_t"}
_KEYWORDS = frozenset(
    (
        *("auto", "bool", "break", "case", "char", "const", "continue", "default", "do", "double"),
        *("else", "enum", "extern", "float", "for", "goto", "if", "inline", "int", "long"),
        *("register", "restrict", "return", "short", "signed", "sizeof", "static", "struct"),
        *("switch", "typedef", "union", "unsigned", "void", "volatile", "while"),
        *("slots", "threads"),  # and what our text calls its own
    )
)
_TEMPLATE = Path(__file__).with_name("host.c.in")
_WAKE_FROM_NS = 150_000  # of a launch: a library does not know whether its threads are awake


def ship_host(kernel: CpuKernel, manifest: dict[str, Any], folder: Path) -> None:
    """Write library, header and C text of a kernel into a folder, and name them in its manifest.

    Raises `UnsupportedError` where no C compiler is found to link with, and for a kernel that calls
    functions of the user's.
    """
    if not is_posix():
        raise UnsupportedError(
            "kernels for a processor are shipped on Linux and macOS alone",
            hint="ship it there, or call it through this package",
        )
    _check_calls(kernel)
    name = ascii_name(kernel.signature.name)
    interface = _Interface(kernel, manifest, name)
    library = f"lib{name}{'.dylib' if sys.platform == 'darwin' else '.so'}"
    (folder / f"{name}.h").write_text(interface.header(), encoding="utf-8")
    (folder / f"{name}.c").write_text(interface.source(), encoding="utf-8")
    (folder / f"{name}.ll").write_text(kernel.module.text, encoding="utf-8")
    _link(kernel, folder / f"{name}.c", folder / library)
    native = kernel.native
    manifest |= {
        "library": library,
        "symbol": name,
        "grids": [[formula_of(launch.blocks)] for launch in kernel.module.launches],
        "processor": {"cpu": native.cpu, "features": sorted(native.features)},
    }


def _check_calls(kernel: CpuKernel) -> None:
    program = kernel.record.program
    for stmt in statements(program.body):
        if isinstance(stmt, ExternCall) and program.sources:
            raise UnsupportedError(
                f"'{stmt.name}' is a C function of the kernel's own (T.import_source), and those "
                "are not shipped",
                program.span(stmt.site),
                hint="write it as a T.macro",
            )


class _Interface:
    """The C texts around a kernel's machine code."""

    def __init__(self, kernel: CpuKernel, manifest: Mapping[str, Any], name: str) -> None:
        self.kernel, self.manifest, self.name = kernel, manifest, name
        self.parameters: list[dict[str, Any]] = manifest["parameters"]
        self.symbols: list[dict[str, Any]] = manifest["symbols"]
        every = [each["name"] for each in (*self.parameters, *self.symbols)]
        self.names = _c_names(every)  # in the order of the slots
        self.slots = {each: f"slots[{at}]" for at, each in enumerate(every)}

    def header(self) -> str:
        lines = [f"/* '{self.name}' {self._made_for()}", " *"]
        width = max((len(each) for each in self.names), default=0)
        for spec, c_name in zip(self.parameters, self.names, strict=False):
            shape = f"[{', '.join(spec['shape_text'])}]" if spec["kind"] == "tensor" else ""
            use = "written" if spec["output"] else "read and written" if spec["written"] else "read"
            lines.append(f" *   {c_name:{width}}  {spec['dtype']}{shape}, {use}")
        lines += [
            " *",
            " * Tensors are row-major, and what is written overlaps no other. `threads` is how",
            " * many run at most; 0: one for each core. The result is 0, or what",
            f" * tile_{self.name}_message() puts in words. Several threads may call it at once.",
            " */",
            f"#ifndef TILE_{self.name.upper()}_H",
            f"#define TILE_{self.name.upper()}_H",
            "#include <stdbool.h>",
            "#include <stdint.h>",
            "#ifdef __cplusplus",
            'extern "C" {',
            "#endif",
            f"{self._declaration()};",
            f"const char *tile_{self.name}_message(int code);",
            "/* The feature that the library needs and this processor lacks, or NULL. */",
            f"const char *tile_{self.name}_lacks(void);",
            "/* The same call with every argument, then every symbol, as 64 bits. */",
            f"int tile_{self.name}_call(const int64_t *slots, int threads);",
            "#ifdef __cplusplus",
            "}",
            "#endif",
            "#endif",
        ]
        return "\n".join(lines) + "\n"

    def source(self) -> str:
        module, estimated_ns = self.kernel.module, self.kernel.estimated_ns
        is_short = estimated_ns is not None and estimated_ns < _WAKE_FROM_NS
        values = {
            "NAME": self.name,
            "MADE_FOR": self._made_for(),
            "POOL_BYTES": str(POOL_BYTES),
            "QUEUE_BYTES": str(QUEUE_BYTES),
            "SLOTS_WORD": str(SLOTS_WORD),
            "SCRATCH_BYTES": str(-(-module.scratch_bytes // 4096) * 4096),
            "IS_SHORT": str(int(is_short)),
            "HELPERS": HELPERS,
            "FEATURES": features_text(self.kernel.native.features),
            "ENTRIES": "\n".join(f"extern Entry {each.entry};" for each in module.launches),
            "CHECKS": "\n".join(self._checks()),
            "LAUNCHES": "\n".join(self._launches()),
            "MESSAGES": "\n".join(self._messages()),
            "DECLARATION": self._declaration(),
            "SLOTS": "\n".join(self._slots()),
        }
        text = _TEMPLATE.read_text(encoding="utf-8")
        return re.sub(r"@([A-Z_]+)@", lambda match: values[match[1]], text)

    def _made_for(self) -> str:
        made_by, native = self.manifest["made_by"], self.kernel.native
        return f"for {native.cpu} ({native.level}), by {made_by}."

    def _declaration(self) -> str:
        parts = []
        for spec, c_name in zip(self.parameters, self.names, strict=False):
            c_type = _c_type(spec["dtype"])
            if spec["kind"] == "tensor":
                const = "" if spec["written"] or spec["output"] else "const "
                parts.append(f"{const}{c_type} *{c_name}")
            else:
                parts.append(f"{c_type} {c_name}")
        of_symbols = zip(self.symbols, self.names[len(self.parameters) :], strict=True)
        parts += [f"int64_t {name}" for symbol, name in of_symbols if not _is_scalar(symbol)]
        return f"int tile_{self.name}({', '.join([*parts, 'int threads'])})"

    def _checks(self) -> list[str]:
        lines = []
        for at, symbol in enumerate(self.symbols):
            slot = self.slots[symbol["name"]]
            lines.append(
                f"    if ({slot} < 0 || {slot} > INT64_C({symbol['most']})) return {-300 - at};"
            )
        for at, spec in enumerate(self.parameters):
            if spec["kind"] == "tensor":
                size = " * ".join(c_text(each, self.slots) for each in spec["shape"]) or "1"
                needed = f"slots[{at}] == 0 && " if spec["used"] or spec["output"] else "0 && "
                lines.append(f"    if ({needed}({size}) > 0) return {-200 - at};")
                alignment = max(spec["alignment"], _bytes_of(spec["dtype"]))
                if alignment > 1:
                    lines.append(f"    if (slots[{at}] % {alignment}) return {-400 - at};")
        for at, each in enumerate(self.manifest["assumptions"]):
            lines.append(f"    if (!{c_text(each['formula'], self.slots)}) return {-500 - at};")
        return lines

    def _launches(self) -> list[str]:
        lines = []
        for launch in self.kernel.module.launches:
            text = c_text(formula_of(launch.blocks), self.slots)
            lines.append(f"    if (!code) code = launch({launch.entry}, slots, {text}, threads);")
        return lines

    def _messages(self) -> list[str]:
        name, texts = (
            self.name,
            {
                0: "done",
                -1: "there is no memory for the kernel's scratch",
                -2: "this processor lacks what the library was made for",
                -3: "the grid is empty, or has more than 2147483647 blocks",
            },
        )
        for at, symbol in enumerate(self.symbols):
            texts[-300 - at] = f"'{symbol['name']}' is negative, or more than {symbol['most']}"
        for at, spec in enumerate(self.parameters):
            if spec["kind"] == "tensor":
                alignment = max(spec["alignment"], _bytes_of(spec["dtype"]))
                texts[-200 - at] = f"'{spec['name']}' is NULL"
                texts[-400 - at] = (
                    f"'{spec['name']}' begins at an address that is no multiple of {alignment}"
                )
        for at, each in enumerate(self.manifest["assumptions"]):
            texts[-500 - at] = f"the kernel assumes '{each['text']}', which is not so"
        for at, (message, _) in enumerate(self.kernel.module.assertions):
            what = "device assertion failed"
            if message.startswith(OUT_OF_RANGE):
                what = "an index is out of range for dimension"
                message = message.removeprefix(OUT_OF_RANGE)
            texts[2 + at] = f"{what}: {message}" if message else what
        shown = {code: _c_string(f"'{name}': {text}") for code, text in texts.items()}
        return [f"    case {code}: return {text};" for code, text in shown.items()]

    def _slots(self) -> list[str]:
        lines = []
        for at, (spec, c_name) in enumerate(zip(self.parameters, self.names, strict=False)):
            if spec["kind"] == "tensor":
                lines.append(f"    slots[{at}] = (int64_t)(intptr_t){c_name};")
            elif spec["dtype"].startswith("float") or spec["dtype"] == "bfloat16":
                lines.append(f"    memcpy(&slots[{at}], &{c_name}, sizeof {c_name});")
            else:
                lines.append(f"    slots[{at}] = (int64_t){c_name};")
        for at, symbol in enumerate(self.symbols, len(self.parameters)):
            place = symbol["source"]["parameter"]
            given = f"slots[{place}]" if _is_scalar(symbol) else self.names[at]
            lines.append(f"    slots[{at}] = {given};")
        return [f"    int64_t slots[{max(len(self.names), 1)}] = {{0}};", *lines]


def _is_scalar(symbol: Mapping[str, Any]) -> bool:
    """Whether a symbol is a scalar argument too, which is then passed once."""
    return bool(symbol["source"]["axis"] < 0)


def _c_names(names: list[str]) -> list[str]:
    """Distinct identifiers of C for the names of arguments and symbols."""
    made: list[str] = []
    for name in names:
        plain = re.sub(r"\W", "_", ascii_name(name))
        while plain in made or plain in _KEYWORDS or plain[:1].isdigit():
            plain += "_"
            plain = f"_{plain}" if plain[:1].isdigit() else plain
        made.append(plain)
    return made


def _c_type(dtype: str) -> str:
    return _C_TYPES.get(dtype) or _BITS_TYPES[8 * _bytes_of(dtype)]


def _bytes_of(dtype: str) -> int:
    from tileworkbench.compiler.ir.types import DType

    return max(DType(dtype).bits // 8, 1)


def _c_string(text: str) -> str:
    escaped = (
        text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("?", "\\?")
    )
    return f'"{escaped}"'


def _link(kernel: CpuKernel, source: Path, library: Path) -> None:
    """Compile the C text and link it with the kernel's machine code and the pool of threads."""
    compiler = _find_compiler()
    text = without_lines(kernel.module.text)
    objects = {
        "kernel": _object(text, kernel.native),
        "pool": compile_object(
            _hidden(dispatch_ir(processor.architecture(), True)), native_target("generic"), (), 0
        ),
        "support": support_object(),
    }
    with tempfile.TemporaryDirectory() as place:
        paths = []
        for name, data in objects.items():
            paths.append(Path(place) / f"{name}.o")
            paths[-1].write_bytes(data)
        command = [*compiler, "-shared", "-fPIC", "-O2", "-std=c11", "-fvisibility=hidden"]
        command += ["-o", str(library), str(source), *map(str, paths), "-lm", "-lpthread"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = " ".join(done.stderr.split())[:500]
        raise UnsupportedError(
            f"the C compiler '{compiler[0]}' could not link the kernel: {said}",
            hint="this is a bug in tileworkbench, or the compiler is for another machine",
        )


def _object(text: str, native: NativeTarget) -> bytes:
    return compile_object(_hidden(text), native)


def _hidden(text: str) -> str:
    """Functions that the library keeps to itself: kernels of several libraries have like names."""
    return re.sub(r"^define (?!private|internal|hidden)", "define hidden ", text, flags=re.M)


def _find_compiler() -> list[str]:
    """A C compiler that links: the machine's own, else that of the package `ziglang`."""
    for name in _COMPILERS:
        if path := shutil.which(name):
            return [path]
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc"]
    raise UnsupportedError(
        "a shared library is linked by a C compiler, and this machine has none",
        hint="install one of cc, gcc, clang, or 'pip install ziglang'",
    )
