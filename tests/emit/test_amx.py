"""Products by AMX tile registers: the emitted code with every tile instruction carried out by
numpy, and its assembly for a processor that has them.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.emit.emitters import emit_pack_b
from tests.emit.jit import Jit, Level, export, host_levels
from tests.emit.tiles import poison, random_tile
from tileworkbench.bench.arithmetic import (
    arithmetic_probe,
    products_at_once,
    sums,
    write_factors,
)
from tileworkbench.bench.probes import AREA_BYTES
from tileworkbench.compiler.analysis.micro_tile import LINE_OF_LEAST
from tileworkbench.compiler.emit.llvm.gemm_spec import MicroGemmSpec
from tileworkbench.compiler.emit.llvm.micro_gemm import emit_micro_gemm
from tileworkbench.compiler.emit.llvm.text import EmittedFunction

POINTER, INT, BYTE = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int8
SHAPES = [(32, 64, 64), (16, 64, 128), (48, 128, 64), (37, 96, 64), (70, 150, 192)]
DTYPES = [("bfloat16", "float32"), ("int8", "int32")]


class TileMachine:
    """The instructions as Intel's manual defines them, on registers that are arrays."""

    def __init__(self) -> None:
        self.registers = np.zeros((8, 16, 64), np.uint8)
        self.rows: list[int] = []
        self.widths: list[int] = []
        self.loads = 0
        signatures: dict[str, tuple[Any, ...]] = {
            "ldtilecfg": (POINTER,),
            "tilerelease": (),
            "tilezero": (BYTE,),
            "tileloadd64": (BYTE, POINTER, INT),
            "tilestored64": (BYTE, POINTER, INT),
            "tdpbf16ps": (BYTE, BYTE, BYTE),
            "tdpbssd": (BYTE, BYTE, BYTE),
        }
        self.functions = {
            name: ctypes.CFUNCTYPE(None, *kinds)(getattr(self, name))
            for name, kinds in signatures.items()
        }

    def addresses(self) -> dict[str, int]:
        found = self.functions.items()
        return {f"tile_{name}": ctypes.cast(call, POINTER).value or 0 for name, call in found}

    def ldtilecfg(self, place: int) -> None:
        data = ctypes.string_at(place, 64)
        assert data[0] == 1 and not any(data[1:16]) and not any(data[32:48]) and not any(data[56:])
        self.widths = list(np.frombuffer(data, np.uint16, 8, 16))
        self.rows = list(data[48:56])
        self.registers[:] = 0

    def tilerelease(self) -> None:
        self.rows = self.widths = []

    def tilezero(self, register: int) -> None:
        self.registers[register] = 0

    def tileloadd64(self, register: int, place: int, stride: int) -> None:
        self.loads += 1
        self.registers[register] = 0
        for row in range(self.rows[register]):
            data = ctypes.string_at(place + row * stride, self.widths[register])
            self.registers[register, row, : len(data)] = np.frombuffer(data, np.uint8)

    def tilestored64(self, register: int, place: int, stride: int) -> None:
        for row in range(self.rows[register]):
            data = self.registers[register, row, : self.widths[register]].tobytes()
            ctypes.memmove(place + row * stride, data, len(data))

    def tdpbf16ps(self, c: int, a: int, b: int) -> None:
        left, right = (self.registers[n].reshape(-1).view(ml_dtypes.bfloat16) for n in (a, b))
        self._multiply(c, left, right, np.float32)

    def tdpbssd(self, c: int, a: int, b: int) -> None:
        left, right = (self.registers[n].reshape(-1).view(np.int8) for n in (a, b))
        self._multiply(c, left, right, np.int32)

    def _multiply(self, c: int, a: Any, b: Any, dtype: Any) -> None:
        a = a.reshape(16, -1).astype(dtype)
        b = b.reshape(16, 16, -1).astype(dtype)  # group of k, column, place in the group
        sums = self.registers[c].view(dtype)
        sums += a @ b.transpose(0, 2, 1).reshape(-1, 16)


def with_tiles() -> Level:
    """This machine's level as if it had AMX; the rest of the code runs natively."""
    level = host_levels()[0]
    if not (level.isa.dot_bfloat16 and level.isa.dot_int8):
        pytest.skip("the code around the tile instructions needs AVX-512 with dot products")
    return Level(replace(level.isa, name="avx512_amx", tiles=True), level.features)


def renamed(text: str) -> str:
    """Calls of the functions of `TileMachine` in the place of intrinsics."""
    for name in TileMachine().functions:
        text = text.replace(f"@llvm.x86.{name}(", f"@tile_{name}(")
    return text


def emulated(function: EmittedFunction) -> EmittedFunction:
    lines = frozenset(map(renamed, function.declarations))
    return EmittedFunction(function.name, renamed(function.text), lines)


@pytest.mark.covering(2)
@pytest.mark.parametrize("dtypes", DTYPES, ids="-".join)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("denormal", ["", "a", "b"])
@pytest.mark.parametrize("told", [False, True])
def test_product(
    dtypes: tuple[str, str], shape: tuple[int, int, int], denormal: str, told: bool
) -> None:
    (m, n, k), level, machine = shape, with_tiles(), TileMachine()
    is_float = dtypes[0] == "bfloat16"
    spec = MicroGemmSpec(m, n, k, *dtypes, level.isa, 6, 64, b_least=told and is_float)
    assert spec.tiles
    functions = [
        emulated(export(emit_micro_gemm(spec, "multiply"))),
        export(emit_pack_b(spec, "pack", transposed=False, ragged=False)),
    ]
    jit = Jit(functions, level, imports=machine.addresses())
    rng = np.random.default_rng(0)
    a, b = random_tile(rng, (m, k), dtypes[0]), random_tile(rng, (k, n), dtypes[0])
    if denormal and is_float:
        (a if denormal == "a" else b)[0, 0] = 1e-39
    packed = poison((spec.b_elements + LINE_OF_LEAST,), spec.panel_dtype)
    pack = jit.function("pack", POINTER, INT, POINTER, INT, INT)
    pack(b.ctypes.data, n, packed.ctypes.data, k, n)
    multiply = jit.function("multiply", POINTER, INT, POINTER, INT, POINTER, INT, ctypes.c_bool)
    for accumulate in (False, True):
        c = random_tile(rng, (m, n + 5), dtypes[1]) // (4 if dtypes[1] == "int32" else 1)
        before = c.copy()
        multiply(a.ctypes.data, k, packed.ctypes.data, 0, c.ctypes.data, n + 5, accumulate)
        wide = a.astype(np.float64) @ b.astype(np.float64) + before[:, :n] * float(accumulate)
        limit = 0.0 if dtypes[1] == "int32" else 1e-5 * float(np.abs(wide).max()) * k**0.5
        assert np.abs(c[:, :n] - wide).max() <= limit
        assert c[:, n:].tobytes() == before[:, n:].tobytes()
    # What is denormal is multiplied in float32, without the tile registers: all rows with such a B,
    # two registers of rows with such a row.
    multiplied = {"": True, "a": m >= 48, "b": False}[denormal] or not is_float
    assert bool(machine.loads) == multiplied
    assert not machine.rows


@pytest.mark.parametrize(("kind", "dtype"), DTYPES)
def test_the_probe_of_the_peak(kind: str, dtype: str) -> None:
    """Each of its sums takes a row of one factor times a column of the other in each repetition."""
    level, machine, repeats = with_tiles(), TileMachine(), 3
    probe = arithmetic_probe(kind, level.isa)
    text = renamed(probe.ir_text).replace("define internal", "define")
    jit = Jit([], level, text, machine.addresses())
    area = np.zeros(AREA_BYTES, np.uint8)
    write_factors(area, kind, level.isa)
    jit.function("work", POINTER, INT, INT)(area.ctypes.data, 0, repeats)
    expected = repeats * products_at_once(kind, level.isa)
    total = sums(kind, level.isa)
    np.testing.assert_array_equal(area.view(dtype)[:total], expected)
    assert probe.work * repeats == 2 * total * expected
    assert not machine.rows


def test_other_shapes_take_vectors() -> None:
    isa = with_tiles().isa
    kinds = [
        MicroGemmSpec(15, 64, 64, "bfloat16", "float32", isa, 6, 64),
        MicroGemmSpec(32, 64, 48, "bfloat16", "float32", isa, 6, 64),
        MicroGemmSpec(32, 64, 64, "bfloat16", "bfloat16", isa, 6, 64),
        MicroGemmSpec(32, 64, 64, "bfloat16", "float32", isa, 6, 64, a_layout="columns"),
        MicroGemmSpec(32, 64, 64, "float32", "float32", isa, 6, 64),
    ]
    assert not any(spec.tiles for spec in kinds)


def test_vectors_beside_tiles_are_multiply_adds() -> None:
    """Their dot products of bfloat16 are slow on such a processor: nothing asks for exactness."""
    isa = with_tiles().isa
    for shape in ((8, 64, 64), (32, 64, 48), (32, 40, 64)):
        text = emit_micro_gemm(MicroGemmSpec(*shape, "bfloat16", "float32", isa, 6, 64), "f").text
        assert "llvm.fma" in text
        assert "dpbf16ps" not in text and "umin" not in text
    both = emit_micro_gemm(MicroGemmSpec(37, 100, 64, "bfloat16", "float32", isa, 6, 64), "f").text
    told = MicroGemmSpec(37, 100, 64, "bfloat16", "float32", isa, 6, 64, b_least=True)
    assert emit_micro_gemm(told, "f").text.count("umin") < both.count("umin")
    assert "tdpbf16ps" in both and "avx512bf16.dpbf16ps" not in both and "umin" in both


# Whatever the processor's name misses would abort the process.
ASSEMBLE = """
import sys
import llvmlite.binding as llvm
from tileworkbench.compiler.emit.llvm.gemm_spec import MicroGemmSpec
from tileworkbench.compiler.emit.llvm.isa import isa_from_features
from tileworkbench.compiler.emit.llvm.micro_gemm import emit_micro_gemm

llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()
names = ["avx512f", "avx512bw", "avx512dq", "avx512vl", "fma", "f16c", "avx512vnni", "avx512bf16"]
isa = isa_from_features(dict.fromkeys([*names, "amx-tile", "amx-bf16", "amx-int8"], True))
machine = llvm.Target.from_triple("x86_64-unknown-linux-gnu").create_target_machine(
    cpu="sapphirerapids", opt=2
)
for dtypes in (("bfloat16", "float32"), ("int8", "int32")):
    function = emit_micro_gemm(MicroGemmSpec(64, 128, 256, *dtypes, isa, 6, 64), "multiply")
    text = function.text.replace("define internal", "define")
    module = llvm.parse_assembly("\\n".join(sorted(function.declarations)) + "\\n" + text)
    print(machine.emit_assembly(module))
"""


def test_assembly_of_a_processor_with_tiles() -> None:
    command = [sys.executable, "-c", ASSEMBLE]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for name in ("ldtilecfg", "tileloadd", "tdpbf16ps", "tdpbssd", "tilestored", "tilerelease"):
        assert name in text
