"""Vectors of tensors, which loops read by places of 32 bits: a thread's own, and the wave's."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import re

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.capability import require
from tests.kernels.checks import random
from tileworkbench.compiler.compilation import Options
from tileworkbench.compiler.device.amd import clang
from tileworkbench.compiler.diagnostics import RunError
from tileworkbench.compiler.driver import compile_program
from tileworkbench.kernels import flash_attention, matmul


def loads(shape, dtype="float16", **options):
    kernel = tw.compile(matmul(*shape, dtype, **options), target="hip:gfx942")
    loop = kernel.source[kernel.source.index("for (int k =") :]
    return [line for line in loop.splitlines() if re.search(r"words_of|&[AB]\[", line)]


def test_places_of_loads_are_of_a_thread_and_of_a_wave():
    first, second = loads((256, 256, 256), trans_B=True, num_stages=1)
    thread = r"\(i_\d+ \* 8192 \+ \(tx >> 2\) \* 256 \+ \(tx & 3\) \* 8\) \* 2"
    for line, name, block in ((first, "A", "by"), (second, "B", "bx")):
        wave = rf"\({block} \* 32768 \+ k \* 32\) \* 2"
        assert re.search(rf"= load_u32x4\(words_of_{name}, {thread}, {wave}, 0\);", line)


def test_tensors_of_two_gigabytes_have_addresses_of_64_bits():
    first, second, *_ = loads((1 << 20, 256, 1024), num_stages=2)
    assert "*(const u32x4*)(&A[" in first and "load_u32x4(words_of_B, " in second


def test_a_size_that_the_call_gives_has_addresses_of_64_bits():
    m = T.dynamic("m")
    kernel = tw.compile(matmul(m, 256, 256, "float16", num_stages=2), target="hip:gfx942")
    assert "words_of_A" not in kernel.source and "words_of_B" in kernel.source


@pytest.mark.hip
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(by * 32768 + k * 32) * 2, 0)", "(by * 32768 + k * 32) * 4, 0)"),
        ("(by * 32768 + k * 32) * 2, 0)", "(by * 32768 + k * 33) * 2, 0)"),
        ("words_of_A = tensor_words(A, ", "words_of_A = tensor_words(B, "),
        ("bytes, 0x27000", "bytes - 64u, 0x27000"),
    ],
)
def test_mistakes_in_loads_are_found(old, new):
    require("hip", clang.missing_compiler())
    page = matmul(256, 256, 256, "float16", trans_B=True, num_stages=1)
    text = tw.compile(page, target="hip:gfx942").source
    assert old in text
    options = Options(code=text.replace(old, new))
    planted = compile_program(page.program, "emu:gfx942", options=options)
    a, b = (random(256, 256, dtype="float16", seed=at) for at in (0, 1))
    try:
        result = np.asarray(planted(a.numpy(), b.numpy()), np.float32)
    except RunError:
        return
    assert not np.allclose(result, (a.float() @ b.float().T).numpy(), rtol=2e-2, atol=2e-2)


@pytest.mark.hip
@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx950"])
def test_no_loop_computes_addresses(arch):
    """Places of a wave are in scalar registers, so no load is repeated for each of its values."""
    require("hip", clang.missing_compiler())
    page = flash_attention(1, 2, 512, 512, 64, "float16", block_M=128, block_N=64, num_stages=1)
    code = tw.compile(page, target=f"hip:{arch}").asm
    loop = code[code.index("buffer_load_dwordx4") : code.rindex("s_cbranch")]
    assert not re.search(r"v_addc_co|v_readfirstlane|global_load", loop)
