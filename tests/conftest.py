"""What every test shares: an environment apart from the user's, and skips that a run may forbid."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Generator
from typing import Any

import hypothesis
import pytest
from xdist.scheduler import LoadFileScheduling

from tests import tiers
from tests.capability import VARIABLE, required_capabilities

# The same examples in every run, and no verdict that depends on how busy the machine is.
hypothesis.settings.register_profile(
    "tests",
    deadline=None,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("tests")

# Threads of OpenMP, torch's among them, sleep until there is work: where several processes share
# few cores, waiting in a loop takes them from each other. Read when torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def pytest_configure(config: pytest.Config) -> None:
    try:
        required_capabilities()
    except ValueError as error:  # a misspelt variable must stop the run, not weaken it
        raise pytest.UsageError(str(error)) from error
    tiers.SLOW_TOO = "not slow" not in config.option.markexpr
    if not hasattr(config, "workerinput"):  # a worker sees a part of the tests only
        config.pluginmanager.register(Passed(config))
    # Compiled kernels, measured ceilings and solved puzzles go to folders of this run: no test sees
    # what an earlier run left, and none writes into the user's. Child processes inherit them.
    own_folder(config, "TILEWORKBENCH_DATA_DIR")
    if not hasattr(config, "workerinput"):  # one for all workers: ceilings are measured once
        own_folder(config, "TILEWORKBENCH_CACHE_DIR")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in tiers.left_out(items):
        item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """Collections of garbage need not look at all tests and modules again and again, nor come as
    often as where memory is short: a graph of torch makes thousands of objects, few of them cycles.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def own_folder(config: pytest.Config, variable: str) -> None:
    """Have an environment variable name a new folder until this process ends."""
    folder = tempfile.TemporaryDirectory(prefix="tileworkbench-", ignore_cleanup_errors=True)
    config.add_cleanup(folder.cleanup)
    os.environ[variable] = folder.name


class BrowserTogether(LoadFileScheduling):
    """A file is one worker's, and so is the folder of browser tests: they share a JupyterLab."""

    def _split_scope(self, nodeid: str) -> str:
        folder = "tests/browser/"
        return folder if nodeid.startswith(folder) else super()._split_scope(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> BrowserTogether | None:
    return BrowserTogether(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn the skip of a required test into a failure, however it was skipped."""
    report = yield
    markers = {mark.name for mark in item.iter_markers()} & required_capabilities()
    if report.skipped and markers and not hasattr(report, "wasxfail"):
        reason = report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{VARIABLE} asks for '{min(markers)}', yet the test skipped: {reason}"
    return report


class Passed:
    """The required capabilities that a test passed with, in this process or in any worker."""

    def __init__(self, config: pytest.Config) -> None:
        self.config, self.found = config, set[str]()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self.found |= required_capabilities() & set(report.keywords)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run in which no test of a required capability passed: it proved nothing of it."""
        missing = required_capabilities() - self.found
        if missing and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
            reporter = self.config.pluginmanager.get_plugin("terminalreporter")
            if reporter is not None:
                reporter.write_line(
                    f"\n{VARIABLE} asks for {sorted(missing)}, yet no such test passed."
                )
