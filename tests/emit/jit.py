"""Runs emitted LLVM IR functions in this process, for the tests of their writers."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import llvmlite.binding as llvm

from tileworkbench.compiler.device.host.llvm import native_target
from tileworkbench.compiler.device.host.processor import request_tiles
from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.emit.llvm.isa import Isa, isa_from_features
from tileworkbench.compiler.emit.llvm.text import EmittedFunction

llvm.initialize_native_target()
llvm.initialize_native_asmprinter()

_unique = itertools.count()
_IMPLIED = {"64bit", "cmov", "crc32"}  # features that LLVM lists and levels do not name


@dataclass(frozen=True)
class Level:
    """An instruction set and the LLVM feature string that allows exactly it."""

    isa: Isa
    features: str


def _level(features: dict[str, bool]) -> Level:
    text = ",".join(("+" if present else "-") + name for name, present in features.items())
    return Level(isa_from_features(features), text)


def host_levels() -> list[Level]:
    """Return every level this processor can run, with and without dot products."""
    host = dict(llvm.get_host_cpu_features())
    if host.get("amx-tile") and not request_tiles():
        host["amx-tile"] = False
    levels = [_level(host)]
    best = levels[0].isa
    if best.tiles:
        levels.append(Level(replace(best, name="avx512_vnni", tiles=False), levels[0].features))
    if best.dot_int8 and best.vector_bits == 512:
        plain = replace(best, name="avx512", dot_int8=False, dot_bfloat16=False, tiles=False)
        levels.append(Level(plain, levels[0].features))
    for name in ("avx2", "generic"):
        try:
            kept = native_target(name).features | _IMPLIED
        except UnsupportedError:
            continue
        features = {feature: present and feature in kept for feature, present in host.items()}
        levels.append(_level(features))
        if name == "avx2" and host.get("avxvnni"):
            levels.append(_level(features | {"avxvnni": True}))
    return levels


class Jit:
    """Compiled functions of one module; keeps their code mapped while it lives."""

    def __init__(
        self,
        functions: Sequence[EmittedFunction],
        level: Level,
        exported: str = "",
        imports: Mapping[str, int] | None = None,
    ) -> None:
        """Compile `functions` and the text `exported`, whose functions are external. `imports` are
        the addresses of what they call."""
        text = "\n".join(sorted({line for f in functions for line in f.declarations}))
        text += "\n" + "\n".join(f.text for f in functions) + exported
        module = llvm.parse_assembly(text)
        module.triple = llvm.get_process_triple()
        module.verify()
        cpu = "x86-64" if "64bit" in level.features else ""
        self.machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=cpu, features=level.features, opt=2, jit=True
        )
        self.module = module
        self._engine = llvm.create_lljit_compiler(self.machine, use_jit_link=True)
        self._trackers: list[Any] = []
        self._object = self.machine.emit_object(module)
        builder = llvm.JITLibraryBuilder().add_object_img(self._object).add_current_process()
        names = [
            line.split("@")[1].split("(")[0]
            for line in text.splitlines()
            if line.startswith("define") and "internal" not in line
        ]
        for name in names:
            builder.export_symbol(name)
        for name, address in (imports or {}).items():
            builder.import_symbol(name, address)
        self._library = builder.link(self._engine, f"library{next(_unique)}")

    def function(self, name: str, *argument_types: Any) -> Any:
        """Return an exported function as a ctypes callable without result."""
        return ctypes.CFUNCTYPE(None, *argument_types)(self._library[name])


def export(function: EmittedFunction) -> EmittedFunction:
    """Return the function with external linkage, so that a test may call it."""
    text = function.text.replace("define internal", "define", 1)
    return EmittedFunction(function.name, text, function.declarations)
