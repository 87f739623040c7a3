"""The C-like core of text emission holds no word of a dialect."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.architecture.layers import ROOT

EMIT = Path(__file__).parents[2] / ROOT / "compiler" / "emit"
# Words of CUDA and of `threads.h`; what begins with two underscores is a compiler's own.
WORDS = re.compile(
    r"threadIdx|blockIdx|asm volatile|cp[._]async|mbarrier|ldmatrix|stmatrix|\bw?g?mma\b"
    r"|\bWGMMA|\bTMA|CP_ASYNC|tcgen05|CUtensorMap|cluster[._]|shfl"
    r"|atomic[A-Z]|make_u?(int|float|long)|block::|\bCUDA\b|\bPTX\b|\bsm_\d|__[A-Za-z]\w*"
)
PYTHON = {"__call__", "__future__", "__init__", "__name__", "__new__", "__slots__"}


def words_in(text: str) -> set[str]:
    return {found[0] for found in WORDS.finditer(text)} - PYTHON


def test_the_core_spells_nothing_of_a_dialect() -> None:
    modules = sorted((EMIT / "c_like").glob("*.py"))
    assert len(modules) > 5
    assert {path.name: found for path in modules if (found := words_in(path.read_text()))} == {}


@pytest.mark.parametrize(
    "text",
    [
        "__shared__ int x;",
        "Engine.WGMMA",
        "__syncthreads();",
        'asm volatile("x")',
        "cp.async.wait_all",
    ],
)
def test_the_check_sees_words_of_a_dialect(text: str) -> None:
    assert words_in(text)
    assert words_in(" ".join(path.read_text() for path in (EMIT / "cuda").glob("*.py")))
