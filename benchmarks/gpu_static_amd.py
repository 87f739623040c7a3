"""What kernels cost on AMD's GPUs by their machine code: registers, spills, occupancy, and the
instructions of the main loop by what executes them. No GPU is needed, and no time is measured.

The rows are those of `gpu_static.py`, with others for what 64 KB of LDS has no room for. Softmax
and attention are compiled with `fast_math`, for Triton's exp2 is the bare instruction. Triton's
kernels with the same tiles, threads and stages stand beside ours where an interpreter has it
(``TILEWORKBENCH_TRITON_PYTHON``). Ours are compiled by the clang of ziglang, Triton's by its own
LLVM.
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from common import FOLDER, environment, markdown_table, run_child, write_results
from gpu_static import MASK, SIZE, Row, attention, product
from gpu_static import ROWS as OTHER_ROWS

import tileworkbench as tw
from tileworkbench.compiler.device.amd.clang import HipResources, read_resources
from tileworkbench.compiler.diagnostics import CompileError
from tileworkbench.compiler.machine.tables import machine_of
from tileworkbench.kernels import mla_decode

ARCHS = ("gfx942", "gfx950")
# What stands for rows that take more than the 64 KB of LDS of gfx942, and float8 of its kind.
FITTING = {
    "matmul fp8 fnuz, B transposed": Row(
        lambda: product("float8_e4m3fnuz", (128, 128, 64), 128, trans_B=True), archs=("gfx942",)
    ),
    "matmul fp16 128x256x32, 256 threads": Row(lambda: product("float16", (128, 256, 32), 256)),
    "attention D=128 128x64, 256 threads": Row(lambda: attention(128, (128, 64), 256), True),
    "attention D=128 128x64, 256 threads, causal": Row(
        lambda: attention(128, (128, 64), 256, True), True, True
    ),
    "MLA decode, 32 heads by 16 keys": Row(
        lambda: mla_decode(16, 128, SIZE, block_N=16, block_H=32, threads=128), True
    ),
}
ROWS = OTHER_ROWS | FITTING
PEER = ("TILEWORKBENCH_TRITON_PYTHON", "triton_static.py")
KINDS = {
    "MFMA": r"v_s?mfma\w*",
    "LDS": r"ds_(?!bpermute|permute|swizzle)\w+",
    "global": r"(global|buffer|flat)_\w+",
    "spill": r"scratch_\w+",
    "barrier": r"s_barrier",
    "wait": r"s_waitcnt\w*|s_nop|s_sleep",
    "exchange": r"ds_(bpermute|permute|swizzle)\w*|v_readlane\w*|v_permlane\w*|v_\w+_dpp",
    "special": r"v_(exp|log|rcp|rsq|sqrt|sin|cos)_\w+",
    "vector": r"v_\w+",
    "scalar": r"s_\w+",
}
_INSTRUCTION = re.compile(r"^\s+([a-z]\w+)\b(?:\s+(\.LBB\w+))?")
_LABEL = re.compile(r"^(\.LBB\w+):")
_ARITHMETIC = {"vector", "scalar", "special", "wait"}


NOTES = """An iteration is the shortest loop with most MFMA; kernels without a loop are counted
whole. Some of Triton's loops on gfx950 have two steps, which their MFMA show.

gfx942: no row of ours has more others per MFMA, or instructions, than Triton's. float8_e4m3fn is
not there: ours refuses it and Triton computes it; the machine's own kind has the row "fp8 fnuz".

gfx950, whose MFMA are twice as deep, so that all else counts double. Where ours is longer:

- matmul 128x128x32, 128x256x32 and 64, int8, fp8: a load to LDS is assembly with the wait behind M0
  in it, 6 to 12 s_nop a step, since clang waits for loads of its own builtin at each barrier. The
  loop's end is decided in the loop; Triton has its last steps behind it.
- attention: s_waitcnt in front of MFMA, 64 (23) in the widest row, for ours reads a step along K
  ahead of the products (224 registers, Triton 332), and Q from LDS in each step, 8 reads.
- int4, chunk scan: operands that are made in registers take MFMA of half the depth, twice as many.
- rmsnorm: one instruction."""


@dataclass(frozen=True, slots=True)
class Count:
    """The main loop of one kernel, and what the compiler gave it. `skipped` are those of its
    instructions that a branch leaves out in most steps: arithmetic, like a mask.
    """

    instructions: tuple[str, ...]
    resources: HipResources
    skipped: tuple[str, ...] = ()

    @property
    def kinds(self) -> Counter[str]:
        return Counter(map(_kind, self.instructions))

    def cells(self, arch: str, threads: int) -> list[str]:
        total, mfma = len(self.instructions), self.kinds["MFMA"]
        ratio = f"{(total - mfma) / mfma:.2f}" if mfma else ""
        found = self.resources
        spilled = str(found.spill_store_bytes or "")
        numbers = [str(found.registers), str(found.scalar_registers), spilled]
        taken = [str(found.shared_bytes), str(_waves(found, arch, threads))]
        kinds = (str(self.kinds[kind] or "") for kind in KINDS)
        return [str(total), ratio, *kinds, *numbers, *taken]


def _kind(instruction: str) -> str:
    return next((kind for kind, name in KINDS.items() if re.fullmatch(name, instruction)), "scalar")


def _waves(found: HipResources, arch: str, threads: int) -> int:
    """The waves of a multiprocessor that registers and LDS leave room for."""
    machine = machine_of(arch)
    waves = -(-threads // machine.lanes)
    by_registers = machine.registers // machine.warp_registers(found.registers) // waves
    by_shared = machine.shared.bytes_ // max(machine.shared.taken(found.shared_bytes), 1)
    return min(by_registers, by_shared, machine.warps // waves) * waves


def counted(assembly: str) -> Count:
    """The kernel of a listing that takes most registers: its loop with most MFMA, of those the
    shortest; all of a kernel without a loop that has any, but the longest loop if there is one.
    """
    labels: dict[str, int] = {}
    names: list[str] = []
    branches: list[tuple[int, str]] = []
    for line in assembly.partition("\t.section\t.rodata")[0].splitlines():
        if label := _LABEL.match(line):
            labels[label[1]] = len(names)
        elif found := _INSTRUCTION.match(line):
            names.append(found[1])
            if "branch" in found[1] and found[2]:
                branches.append((len(names), found[2]))
    jumps = [(at, labels[label]) for at, label in branches if label in labels]
    loops = {to: at for at, to in jumps if to < at} or {0: len(names)}

    def rank(start: int) -> tuple[int, int]:
        loop = names[start : loops[start]]
        products = sum(_kind(name) == "MFMA" for name in loop)
        return products, -len(loop) if products else len(loop)

    start = max(loops, key=rank)
    end = loops[start]
    inside = [(at, to) for at, to in jumps if start < at <= end]
    parts = [names[at:to] for at, to in inside if at <= to <= end]
    # A part at the loop's end goes where the branch around it goes.
    parts += [
        names[at:jump] for at, to in inside for jump, other in inside if at < jump and to == other
    ]
    arithmetic = [part for part in parts if {*map(_kind, part)} <= _ARITHMETIC]
    kernel = max(read_resources(assembly), key=lambda each: each.registers)
    skipped = max(arithmetic, key=len, default=[])
    return Count(tuple(names[start:end]), kernel, tuple(skipped))


def ours(name: str, count: Count, row: Row) -> dict[str, Count]:
    """What was counted, by the name of the row; of a masked one also a step without its mask."""
    if not row.masked:
        return {name: count}
    rest = Counter(count.instructions) - Counter(count.skipped)
    return {name: replace(count, instructions=tuple(rest.elements())), name + MASK: count}


def theirs(folder: Path) -> tuple[dict[tuple[str, str], Count], str]:
    """What Triton compiled, by row and architecture, and its version."""
    variable, script = PEER
    interpreter = os.environ.get(variable)
    if interpreter is None:
        return {}, f"not installed ({variable} names no interpreter that has it)"
    made = run_child(FOLDER / script, [str(folder), *ARCHS], interpreter=interpreter)
    entries = made["kernels"]
    found = {}
    for entry in entries:
        count = counted((folder / entry["file"]).read_text())
        taken = replace(count.resources, shared_bytes=entry["shared"])  # which a launch gives
        found[entry["row"], entry["arch"]] = replace(count, resources=taken)
    return found, made["version"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="", help="only rows whose name has this text")
    options = parser.parse_args()
    rows = {name: row for name, row in ROWS.items() if options.rows in name}
    results: dict[tuple[str, str, str], Count] = {}
    threads: dict[str, int] = {}
    for name, row in rows.items():
        for arch in ARCHS:
            if row.archs == ("gfx942",) and arch != "gfx942":
                continue
            try:
                kernel = tw.compile(row.make(), target=f"hip:{arch}", fast_math=row.fast_math)
            except CompileError as error:  # a row less, which the reader is told
                print(f"{name}, {arch}: {error.message}")
                continue
            for shown, count in ours(name, counted(kernel.asm), row).items():
                threads[shown] = kernel.compiled.module.launches[0].threads
                results[shown, arch, "ours"] = count
    with tempfile.TemporaryDirectory() as place:
        found, version = theirs(Path(place))
    results |= {(*key, "Triton"): each for key, each in found.items() if key[0] in threads}
    columns = ["kernel", "who", "instructions", "others per MFMA", *KINDS, "vector registers"]
    columns += ["scalar registers", "spilled bytes", "LDS bytes", "waves"]
    tables = []
    for arch in ARCHS:
        cells = [
            [name, who, *results[name, arch, who].cells(arch, threads[name])]
            for row in rows
            for name in (row, row + MASK)
            for who in ("ours", "Triton")
            if (name, arch, who) in results
        ]
        tables.append(f"## {arch}\n\n{markdown_table(columns, cells)}")
    text = "\n\n".join([*tables, NOTES])
    print(text)
    if not options.rows:
        data = {" | ".join(key): dict(each.kinds) for key, each in results.items()}
        facts = environment(("tileworkbench", "ziglang"))
        facts["versions"] |= {"Triton": version}
        print(f"\nwritten to {write_results('gpu_static_amd', facts, data, text)}")


if __name__ == "__main__":
    main()
