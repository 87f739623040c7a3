"""Kernels of symbolic sizes: a configuration for each range of them, by the model and the clock."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.bench.kernel import specialize
from tileworkbench.tuning import measuring
from tileworkbench.tuning.dispatch import DispatchedKernel, border, cover, grouped
from tileworkbench.tuning.dynamic import with_sizes

CONFIGS = [{"block": 8}, {"block": 32}, {"block": 64}]
# milliseconds by block: at the start, and for each element
COSTS = {8: (0.1, 0.010), 32: (0.5, 0.002), 64: (0.45, 0.003)}


def lazy(N, block=8):
    @T.prim_func
    def main(A: T.Tensor((N,), T.float32), B: T.Tensor((N,), T.float32)):
        with T.Kernel(T.ceildiv(N, block), threads=32) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] * 2

    return main


def eager(A, block: int = 8):
    n = T.dynamic("n")
    K = T.const("K")
    A: T.Tensor((n, K), "float32")
    B = T.empty((n, K), "float32")
    with T.Kernel(T.ceildiv(n, block), threads=32) as bx:
        for i, j in T.Parallel(block, K):
            B[bx * block + i, j] = A[bx * block + i, j] + block
    return B


def two(M, N, block=8):
    @T.prim_func
    def main(A: T.Tensor((M, N), T.float32), B: T.Tensor((M, N), T.float32)):
        with T.Kernel(T.ceildiv(M, block), threads=32) as bx:
            for i, j in T.Parallel(block, N):
                B[bx * block + i, j] = A[bx * block + i, j] * 2

    return main


class Clock:
    """In place of the time model and of time: `COSTS`; counts what is asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.predicted = self.measured = 0
        self.turned = False  # the clock disagrees with the model
        self._block = self._size = 0
        clock = self

        def causes(kernel: Any) -> Any:
            clock.predicted += 1
            return type("Causes", (), {"total_us": 1e3 * clock.time(*clock.facts(kernel))})

        def check(measurement: Any, job: Any) -> measuring.Outcome:
            size = job.inputs[0].shape[0] * (job.inputs[0].shape[1:].numel() or 1)
            clock._size, clock._block = size, clock.block_of(measurement._kernel)
            measurement._run = lambda: None
            return measuring.Outcome()

        def bench(*given: Any) -> float:
            clock.measured += 1
            time = clock.time(clock._block, clock._size)
            return -time + 100 if clock.turned else time

        monkeypatch.setattr(tw.Kernel, "causes", property(causes))
        monkeypatch.setattr(measuring.Measurement, "_check", check)
        monkeypatch.setattr(measuring, "do_bench", bench)

    @staticmethod
    def time(block: int, size: int) -> float:
        start, each = COSTS[block]
        return start + each * size

    @staticmethod
    def block_of(kernel: Any) -> int:
        constants = dict(kernel.compiled.options.constants)
        return int(constants["block"])

    def facts(self, kernel: Any) -> tuple[int, int]:
        shape = kernel.program.params[0].value.shape
        size = 1
        for extent in shape:
            size *= int(str(extent))
        return self.block_of(kernel), size


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def tuned(fn: Any, sizes: Any, **options: Any) -> Any:
    made = tw.autotune(CONFIGS, sizes=sizes, isolate=False, **options)
    return made(tw.jit(fn, out_idx=[-1]) if fn is not eager else tw.jit(fn))


SIZES = {"N": [1024, 16, 128, 8]}


def test_the_model_chooses_buckets_and_the_clock_what_is_in_them(clock: Clock) -> None:
    function = tuned(lazy, SIZES)
    kernel = function(T.dynamic("N"))
    assert isinstance(kernel, DispatchedKernel)
    assert clock.predicted == 12 + 8 and clock.measured == 4
    assert str(kernel) == (
        "N=8,16: block=8, 0.26 ms at the largest\nN=128,1024: block=32, 2.548 ms at the largest"
    )
    assert repr(kernel) == "<main in 2 buckets of N>"
    # the border lies between 16 and 128, near 50, where the model's times are equal
    for size, block in ((1, 8), (16, 8), (47, 8), (48, 32), (128, 32), (5000, 32)):
        assert kernel.kernel_for(N=size).config == {"block": block}, size
        assert kernel.kernel_of([torch.zeros(size)]).config == {"block": block}
        assert torch.equal(kernel(torch.ones(size)), torch.full((size,), 2.0))
    assert function(T.dynamic("N")) is kernel and clock.measured == 4
    clock.turned = True
    other = tuned(lazy, SIZES, store=False)(T.dynamic("N"))
    assert [bucket.config for bucket in other.buckets] == [{"block": 64}, {"block": 64}]


def test_the_file_answers_at_once(clock: Clock) -> None:
    first = tuned(lazy, SIZES)(T.dynamic("N"))
    again = tuned(lazy, SIZES)(T.dynamic("N"))
    assert (clock.predicted, clock.measured) == (12 + 8, 4)
    assert str(again) == str(first)
    tuned(lazy, {"N": [2048]})(T.dynamic("N"))  # another shape class
    assert clock.predicted == 12 + 8 + 3


def test_an_eager_function_is_called_with_its_tensors(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    function = tuned(eager, {"n": [8, 512]})
    assert function(torch.zeros(4, 2)).unique().tolist() == [8.0]
    assert function(torch.zeros(900, 2)).unique().tolist() == [32.0]
    assert function(torch.zeros(5, 2)).unique().tolist() == [8.0]
    measured = clock.measured
    assert measured == 4
    monkeypatch.setattr(function, "_dispatched", None)  # a form that was seen needs no look-up
    assert function(torch.zeros(4, 2)).unique().tolist() == [8.0]
    monkeypatch.undo()
    assert clock.measured == measured


def test_another_constant_is_another_kernel(clock: Clock) -> None:
    function = tuned(eager, {"n": [8, 512]})
    function(torch.zeros(4, 2))
    function(torch.zeros(4, 3))
    assert clock.measured == 8


def test_two_symbols(clock: Clock) -> None:
    kernel = tuned(two, {"M": [4, 64], "N": [4, 64]})(T.dynamic("M"), T.dynamic("N"))
    assert [(bucket.samples, dict(bucket.config)) for bucket in kernel.buckets] == [
        (((4, 4),), {"block": 8}),
        (((4, 64), (64, 4), (64, 64)), {"block": 32}),
    ]
    assert kernel.kernel_for(M=16, N=16).config == {"block": 8}
    assert kernel.kernel_of([torch.zeros(17, 16)]).config == {"block": 32}
    assert torch.equal(kernel(torch.ones(17, 16)), torch.full((17, 16), 2.0))


def test_a_wrong_call_is_told_as_by_any_kernel(clock: Clock) -> None:
    kernel = tuned(lazy, SIZES)(T.dynamic("N"))
    for args in ((), (torch.ones(3, 3),), (3,), (torch.ones(2), torch.ones(2))):
        with pytest.raises(tw.TileError) as mine:
            kernel(*args)
        with pytest.raises(tw.TileError) as its:
            kernel.kernels[0](*args)
        assert str(mine.value) == str(its.value)


def test_choosing_is_little_work(clock: Clock) -> None:
    """Two functions of Python and one bisection more, however many buckets there are; what that
    costs is measured by benchmarks/dispatch.py.
    """
    kernel = tuned(lazy, SIZES)(T.dynamic("N"))
    a = torch.ones(8)
    calls: list[Any] = []

    def count(frame: Any, event: str, what: Any) -> None:
        if event in ("call", "c_call"):
            calls.append(what or frame.f_code.co_name)

    def calls_of(run: Any) -> list[Any]:
        del calls[:]
        run(a)
        sys.setprofile(count)
        try:
            run(a)
        finally:
            sys.setprofile(None)
        return list(calls)

    alone, dispatched = calls_of(kernel.kernels[0]), calls_of(kernel)
    added = [getattr(each, "__name__", each) for each in dispatched[: len(dispatched) - len(alone)]]
    assert added == ["__call__", "pick", "bisect_right"]


def test_sizes_that_no_kernel_is_for(clock: Clock) -> None:
    kernel = tuned(lazy, SIZES)(T.dynamic("N"))
    for sizes, message in (
        ({}, "kernel_for takes N, not nothing"),
        ({"M": 3}, "kernel_for takes N, not M"),
        ({"N": "3"}, "'N' is a positive integer, not '3'"),
        ({"N": -1}, "'N' is a positive integer, not -1"),
        ({"N": True}, "'N' is a positive integer, not True"),
    ):
        with pytest.raises(tw.ArgumentError) as caught:
            kernel.kernel_for(**sizes)
        assert str(caught.value) == message
    with pytest.raises(tw.ArgumentError) as caught:
        tuned(lazy, [1, 2])
    assert str(caught.value) == (
        "sizes has samples by the name of a symbol, and is no list\n"
        "hint: such as sizes={'M': [16, 128, 1024]}"
    )


def test_the_kernel_is_that_of_the_last_call(clock: Clock) -> None:
    function = tuned(eager, {"n": [4, 1024]})
    seen = []
    for rows in (1024, 4, 1024, 4):
        function(torch.zeros(rows, 2))
        seen.append(function.kernel.config)
    assert seen == [{"block": 32}, {"block": 8}] * 2


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (
            {},
            "sizes has no positive integers for the symbol 'N' of 'lazy'\n"
            "hint: such as sizes={'N': [16, 128, 1024]}",
        ),
        (
            {"N": [0]},
            "sizes has no positive integers for the symbol 'N' of 'lazy'\n"
            "hint: such as sizes={'N': [16, 128, 1024]}",
        ),
        *(
            (
                {"N": given},
                "sizes has no positive integers for the symbol 'N' of 'lazy'\n"
                "hint: such as sizes={'N': [16, 128, 1024]}",
            )
            for given in (5, "12", [True], [])
        ),
        ({"N": [1], "K": [2]}, "'lazy' has no symbol 'K', which sizes names"),
    ],
)
def test_wrong_sizes(clock: Clock, sizes: Any, message: str) -> None:
    with pytest.raises(tw.ArgumentError) as caught:
        tuned(lazy, sizes)(T.dynamic("N"))
    assert str(caught.value) == message


def test_what_the_model_knows_nothing_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tw.Kernel, "causes", property(lambda kernel: None))
    made = tw.autotune(CONFIGS, sizes=SIZES, isolate=False)
    with pytest.raises(tw.UnsupportedError) as caught:
        made(tw.jit(lazy, out_idx=[-1], target="cpu:generic"))(T.dynamic("N"))
    assert str(caught.value) == (
        "there is no prediction for 'lazy' on 'cpu:generic'\n"
        "hint: leave out sizes, and the kernel is tuned for the tensors of a call"
    )


def test_scalars_have_no_sizes(clock: Clock) -> None:
    @T.prim_func
    def scaled(A: T.Tensor((T.dynamic("n"),), T.float32), s: T.float32):
        with T.Kernel(1, threads=32):
            A[0] = s

    with pytest.raises(tw.UnsupportedError) as caught:
        with_sizes(scaled.program, {"n": 3})
    assert str(caught.value) == (
        "there is no prediction for 'scaled': its argument 's' is a scalar\n"
        "hint: leave out sizes, and the kernel is tuned for the tensors of a call"
    )


def test_a_symbol_that_no_extent_is(clock: Clock) -> None:
    def halves(N, block=8):
        @T.prim_func
        def main(A: T.Tensor((N * 2,), T.float32)):
            with T.Kernel(T.ceildiv(N, block), threads=32) as bx:
                for i in T.Parallel(block):
                    A[bx * block + i] = 1.0

        return main

    function = tw.autotune(CONFIGS, sizes={"N": [8]}, isolate=False)(tw.jit(halves))
    with pytest.raises(tw.UnsupportedError) as caught:
        function(T.dynamic("N"))
    assert clock.predicted == 0
    assert str(caught.value) == (
        "no argument of 'main' has the symbol 'N' as an extent\n"
        "hint: what depends on a size is chosen by the shapes of arguments"
    )


class TestBuckets:
    """The choice, from times."""

    def test_as_few_as_do(self) -> None:
        # the second is within 4 % of the best everywhere
        times = {(1,): [1.0, 1.04], (2,): [2.0, 2.0], (3,): [5.0, 3.0]}
        assert cover(times) == {(1,): 1, (2,): 1, (3,): 1}
        times = {(1,): [1.0, 1.1], (2,): [2.0, 2.0], (3,): [5.0, 3.0]}
        assert cover(times)[(1,)] == 0 and cover(times)[(3,)] == 1

    def test_a_sample_keeps_what_is_as_close(self) -> None:
        """Two that take turns, 4 % apart, are one bucket; 10 % apart they are many."""
        for more, buckets in ((1.04, 1), (1.1, 6)):
            times = {(at,): [more, 1.0] if at % 2 else [1.0, more] for at in range(1, 7)}
            times |= {(7,): [3.0, 1.0], (8,): [1.0, 3.0]}  # so that both are needed
            assert len(grouped(cover(times))) == buckets + 2

    def test_four_at_most(self) -> None:
        times = {(at,): [1.0 if place == at else 9.0 for place in range(6)] for at in range(1, 6)}
        assert len(set(cover(times).values())) == 4

    def test_what_does_not_compile_is_never_chosen(self) -> None:
        assert cover({(1,): [float("inf"), 2.0]}) == {(1,): 1}

    def test_neighbours_of_one_symbol_are_one_bucket(self) -> None:
        choice = {(1,): 0, (2,): 0, (4,): 1, (8,): 0}
        assert grouped(choice) == [(0, ((1,), (2,))), (1, ((4,),)), (0, ((8,),))]

    def test_borders(self) -> None:
        assert [border(8, 32), border(16, 128), border(1, 2)] == [17, 46, 2]


def test_a_program_for_given_sizes_is_that_of_constants() -> None:
    symbolic = lazy(T.dynamic("N"), 8).program
    made = with_sizes(symbolic, {"N": 100})
    assert made.symbols == ()
    assert made == specialize(symbolic, [torch.zeros(100), torch.zeros(100)])
    assert [str(extent) for extent in made.params[0].value.shape] == ["100"]
