"""Skips that say why, and that a run may forbid.

A test that needs something a machine may lack (Chromium, NVRTC, a GPU) calls `require`. Where the
environment names the capability (`TILEWORKBENCH_REQUIRE=browser,nvrtc`), as `.ci/run` does, the
missing thing is a failure instead of a skip.
"""

from __future__ import annotations

import os

import pytest

VARIABLE = "TILEWORKBENCH_REQUIRE"
CAPABILITIES = frozenset({"browser", "gpu", "hip", "nvrtc"})


def required_capabilities() -> frozenset[str]:
    """The capabilities this run must not skip. Raises `ValueError` for a name that is none."""
    words = os.environ.get(VARIABLE, "").split(",")
    names = frozenset(word.strip() for word in words if word.strip())
    if unknown := sorted(names - CAPABILITIES):
        raise ValueError(f"'{VARIABLE}' names '{unknown[0]}'; it may name {sorted(CAPABILITIES)}")
    return names


def require(capability: str, reason: str | None) -> None:
    """Skip the calling test if there is a reason to, or fail it where the capability is required.

    `reason` is one sentence saying what is missing, or None when nothing is.
    """
    if capability not in CAPABILITIES:
        raise ValueError(f"'{capability}' is none of {sorted(CAPABILITIES)}")
    if reason is None:
        return
    if capability in required_capabilities():
        pytest.fail(f"{VARIABLE} asks for '{capability}': {reason}", pytrace=False)
    pytest.skip(reason)
