"""The whole library for 64-bit ARM processors, as far as assembly: this machine has none."""

from __future__ import annotations

import subprocess
import sys

# In a process of its own: LLVM aborts where it cannot select an instruction.
ASSEMBLE = """
import llvmlite.binding as llvm
from tests.kernels.test_gpu import CASES
from tileworkbench.compiler.emit.llvm.isa import isa_from_features
from tileworkbench.compiler.emit.llvm.program import generate
from tileworkbench.compiler.compilation import lower_program
from tileworkbench.compiler.target import Target

llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()
isa = isa_from_features({"neon": True})
machine = llvm.Target.from_triple("aarch64-unknown-linux-gnu").create_target_machine(opt=2)
for name, case in CASES.items():
    program = case()[0].program
    lowered = lower_program(program, Target("cpu", "neon", vector_bits=128))[-1].program
    module = llvm.parse_assembly(generate(lowered, isa).text)
    module.verify()
    text = machine.emit_assembly(module)
    print(name, "fmla" in text)
"""


def test_every_kernel_of_the_library_has_assembly() -> None:
    command = [sys.executable, "-c", ASSEMBLE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert not done.returncode, done.stderr[-2000:]
    found = dict(line.split() for line in done.stdout.splitlines())
    assert len(found) > 25
    products = ("matmul", "flash_attention", "dequant_matmul", "mla_decode", "chunk_scan")
    assert all(found[name] == "True" for name in products)  # multiply and add in one, in vectors
