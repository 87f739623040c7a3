"""No text of a kernel ends in anything but a compiled kernel or an error of the kernel.

The texts are the golden kernels of the front end, accepted and rejected ones, with a few random
changes. What a kernel's text makes Python itself refuse before anything of ours runs is not
counted. `python -m tests.fuzz.test_front_end FIRST LAST` tries the seeds between two numbers.
"""

from __future__ import annotations

import functools
import linecache
import signal
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType

import pytest

import tileworkbench
from tests.frontend.golden import FOLDER, define, program_of, read_cases
from tests.fuzz.mutations import mutate
from tileworkbench.compiler.device.host.llvm import NativeError
from tileworkbench.compiler.diagnostics import ArgumentError, CompileError, VerifyError
from tileworkbench.compiler.driver import compile_program, lower_program, resolve_target
from tileworkbench.compiler.emit.cuda.dialect import generate_cuda
from tileworkbench.compiler.frontend import errors
from tileworkbench.compiler.ir.program import Program

PACKAGE = str(Path(tileworkbench.__file__).parent)
SECONDS = 60


@functools.cache
def sources() -> tuple[str, ...]:
    """The texts that are changed: every third one is wrong from the start."""
    right = [case.source for path in _files("programs") for case in read_cases(path)]
    wrong = [case.source for path in _files("diagnostics") for case in read_cases(path)]
    library = [case for case in right if len(case) > 400]
    return (*right, *library, *wrong[:: max(1, 3 * len(wrong) // len(right))])


def _files(kind: str) -> list[Path]:
    return sorted((FOLDER / kind).glob("*.txt"))


@functools.cache  # of errors nothing is kept
def outcome(seed: int, target: str = "cpu:generic") -> str:
    """What becomes of the text of `seed` on a target: the kind of the error, "compiled", or
    "refused" by Python. Anything else raises.
    """
    kernels = sources()
    text = mutate(kernels[seed % len(kernels)], seed)
    try:
        with warnings.catch_warnings(), _within(SECONDS), _watched():
            warnings.simplefilter("ignore")
            compile(text, "kernel.py", "exec")
            _compile(program_of(text), target)
    except (VerifyError, NativeError):
        raise
    except (CompileError, ArgumentError) as error:
        error.render()
        return type(error).__name__
    except Exception as error:
        if _is_pythons(error.__traceback__):
            return "refused"
        raise
    return "compiled"


def _compile(program: Program, target: str) -> None:
    resolved = resolve_target(target)
    if resolved.kind == "cpu":
        compile_program(program, target)
    else:  # to the text, for which no compiler is needed
        generate_cuda(lower_program(program, resolved)[-1].program, resolved)


def _is_pythons(raised: TracebackType | None) -> bool:
    """Whether the module's own code or a plain function raised, or nothing of ours ran before, or
    the kernel computes with Python's numbers alone: ``2 ** 2 ** 64`` would not end.
    """
    codes = [entry.tb_frame.f_code for entry in errors._entries(raised)]
    stopped = codes[-1].co_name == "stop"
    if stopped or codes[-1].co_name == "__getattr__":
        codes.pop()
    plain = codes[-1].co_filename == "kernel.py" and (stopped or codes[-1] not in errors._rewritten)
    return plain or not any(code.co_filename.startswith(PACKAGE) for code in codes)


@contextmanager
def _within(seconds: int) -> Iterator[None]:
    """Raise `TimeoutError` when the block takes longer."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"took more than {seconds} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _watched() -> Iterator[None]:
    """Let errors that our code did not mean to raise through as they are, not as the kernel's.

    Only for kinds that the kernel's text rarely causes: our code acts for it, with wrong values.
    """
    real = errors._kind_of

    def meant(error: type[Exception], raiser: object) -> type[CompileError] | None:
        current = sys.exception()
        entries = errors._entries(current.__traceback__) if current is not None else []
        last = entries[-1] if entries else None
        if last is not None and error in (IndexError, ValueError) and _is_unmeant(last):
            return None
        return real(error, raiser)  # type: ignore[arg-type]

    errors._kind_of = meant  # type: ignore[assignment]
    try:
        yield
    finally:
        errors._kind_of = real


def _is_unmeant(entry: TracebackType) -> bool:
    """Whether an exception came out of our code, though not from a `raise` in it."""
    code = entry.tb_frame.f_code
    line = linecache.getline(code.co_filename, entry.tb_lineno).strip()
    acting = code.co_filename in errors._ACTING
    return errors.is_ours(code) and not acting and not line.startswith("raise")


CHUNK = 25


@pytest.mark.parametrize("first", range(0, 200, CHUNK))
def test_changed_kernels(first: int) -> None:
    for seed in range(first, first + CHUNK):
        outcome(seed)


@pytest.mark.parametrize("first", range(0, 50, CHUNK))
def test_changed_kernels_on_a_gpu(first: int) -> None:
    for seed in range(first, first + CHUNK):
        outcome(seed, "cuda:sm_80")


@pytest.mark.slow
@pytest.mark.parametrize("first", range(200, 10_000, 400))
def test_many_changed_kernels(first: int) -> None:
    for seed in range(first, first + 400):
        outcome(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(50, 2450, 400))
def test_many_changed_kernels_on_a_gpu(first: int) -> None:
    for seed in range(first, first + 400):
        outcome(seed, "cuda:sm_90a")


def test_changes_compile_and_fail() -> None:
    """The changes are neither all harmless nor all absurd."""
    found = Counter(outcome(seed) for seed in range(60))
    assert found["compiled"] >= 5 and sum(found.values()) - found["compiled"] >= 20


def test_the_same_seed_gives_the_same_text() -> None:
    source = sources()[0]
    assert [mutate(source, seed) for seed in range(5)] == [mutate(source, s) for s in range(5)]
    assert len({mutate(source, seed) for seed in range(20)}) > 10
    define(source)


def try_seeds(first: int, last: int) -> None:
    """Print what survives of the seeds, and how often each outcome was met."""
    counts: Counter[str] = Counter()
    for seed in range(first, last):
        try:
            counts[outcome(seed)] += 1
        except Exception as error:
            counts["survived"] += 1
            frames = traceback.extract_tb(error.__traceback__)[-3:]
            where = ", ".join(f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in frames)
            print(f"=== seed {seed}: {type(error).__name__}: {str(error)[:200]}\n    {where}")
    print(dict(counts))


if __name__ == "__main__":
    try_seeds(int(sys.argv[1]), int(sys.argv[2]))
