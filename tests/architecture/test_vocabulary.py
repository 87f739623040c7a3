"""The words that the JupyterLab extension completes and explains are those of the package."""

from __future__ import annotations

import json

import tileworkbench.language as T
from tileworkbench.language.unsupported import UNSUPPORTED
from tileworkbench.viz.magics.grammar import COMMANDS, VIEWS, flags
from tileworkbench.viz.magics.vocabulary import FILE, text

COMMAND = "python -m tileworkbench.viz.magics.vocabulary"


def test_the_committed_words_are_those_of_the_package() -> None:
    assert FILE.read_text(encoding="utf-8") == text(), f"run '{COMMAND}' and commit what it wrote"


def test_the_words_are_complete() -> None:
    words = json.loads(text())
    assert set(words["language"]) == set(T._names) - set(UNSUPPORTED)
    assert sorted(name for flag in words["flags"] for name in flag["names"]) == flags()
    assert set(words["commands"]) == set(COMMANDS)
    values = {flag["names"][-1]: flag["values"] for flag in words["flags"]}
    assert values["--show"] == list(VIEWS)
    assert (values["--target"], values["--disable"]) == (["<targets>"], ["<passes>"])
    assert values["--baseline"] == ["prev", "<kernels>"]
    assert {"auto", "cpu", "sim:sm_80", "cuda:sm_90"} <= set(words["targets"])
    copy = words["language"]["copy"]
    assert copy["signature"].startswith("T.copy(src, dst, coalesced_width=None")
    assert " at 0x" not in text() and "<function" not in text()
