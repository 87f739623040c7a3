"""How kernels of a graph are called: by addresses behind views, updates in place, one kernel for
all that is alike, and what is measured beforehand."""

import copy
import functools
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tileworkbench as tw
from tileworkbench.compiler.diagnostics import ArgumentError, DeviceAssertError, interrupted
from tileworkbench.pytorch import backend, trials
from tileworkbench.pytorch.backend import Settings, tile_backend
from tileworkbench.pytorch.calls import Call
from tileworkbench.pytorch.copies import drop_copies
from tileworkbench.pytorch.forms import form_of
from tileworkbench.pytorch.report import Report
from tileworkbench.workbench.kernel import Kernel

_times = trials._times  # `conftest` puts another one in its place
EVERYTHING = Settings(least_work=1, least_elements=1)


def compiled(fn: Any, report: Report, settings: Settings = EVERYTHING) -> Any:
    into = functools.partial(tile_backend, report=report, settings=settings)
    return torch.compile(fn, backend=into)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How each kernel was called: "run" by addresses, "checked" as a user calls it."""
    made: list[str] = []
    checked, call = Kernel.__call__, Call.__call__

    def by_user(kernel: Kernel, *args: Any) -> Any:
        made[-1] = "checked"
        return checked(kernel, *args)

    def by_graph(self: Call, *args: Any) -> Any:
        made.append("run")
        return call(self, *args)

    monkeypatch.setattr(Kernel, "__call__", by_user)
    monkeypatch.setattr(Call, "__call__", by_graph)
    return made


# Addresses


VIEWS: dict[str, Callable[[Any], Any]] = {
    "whole": lambda x: x,
    "a part": lambda x: x[2:5],
    "a part of a part": lambda x: x[1:7][3:, :],
    "one row": lambda x: x[4],
    "another shape": lambda x: x.view(4, 2, 24),
    "columns": lambda x: x[:, 3:9],  # not one behind the other: torch copies them
    "every second row": lambda x: x[::2],
    "one of several": lambda x: x.split(3)[1],
    "repeated": lambda x: x[3].expand(5, 24),
}


@pytest.mark.covering(1)
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_views_are_read_where_they_are(view: Any, dtype: Any, calls: list[str]) -> None:
    def fn(x: Any) -> Any:
        return torch.sigmoid(view(x)) * 2 + 1

    report = Report()
    x = torch.randn(8, 24).to(dtype)
    with torch.no_grad():
        found = compiled(fn, report)(x)
    torch.testing.assert_close(found, fn(x))
    assert found.stride() == fn(x).stride() and calls == ["run"]


def test_a_view_of_a_view_that_the_caller_made(calls: list[str]) -> None:
    report = Report()
    whole = torch.randn(10, 6, 8)
    x = whole[3:7].view(-1, 8)[5:]  # the address of an input is where it begins
    fn = compiled(lambda x: torch.exp(x[1:]) + 1, report)
    with torch.no_grad():
        torch.testing.assert_close(fn(x), torch.exp(x[1:]) + 1)
    assert calls == ["run"]


def test_what_torch_lays_out_otherwise_is_looked_at(calls: list[str]) -> None:
    x = torch.randn(6, 8)
    call = _first_call(lambda x: torch.exp(x.sort(-1).values) * 2 + 1, x)
    calls.clear()
    call(x)
    call(x.t().contiguous().t())  # the result of an operation that is not as it said
    assert calls == ["run", "checked"]
    torch.testing.assert_close(call(x.t().contiguous().t()), torch.exp(x) * 2 + 1)


def test_an_error_of_a_kernel_is_the_one_of_a_checked_call(calls: list[str]) -> None:
    table, at = torch.randn(9, 32), torch.tensor([3, 11])
    fn = compiled(lambda table, at: table[at] * 2 + 1, Report())
    with torch.no_grad(), pytest.raises(DeviceAssertError, match="an index is out of range"):
        fn(table, at)
    assert calls == ["checked"]


def test_a_kernel_that_is_interrupted_is_not_called_again(calls: list[str]) -> None:
    x = torch.randn(6, 8)
    call = _first_call(lambda x: torch.exp(x) * 2 + 1, x)
    calls.clear()

    def run(addresses: Any) -> None:
        raise interrupted("exp_mul")

    call.run = run
    with pytest.raises(KeyboardInterrupt):
        call(x)
    assert calls == ["run"]


def _first_call(fn: Any, *args: Any) -> Call:
    """The first kernel of a function's graph."""
    made: list[Call] = []
    call = Call.__call__

    def noted(self: Call, *tensors: Any) -> Any:
        made.append(self)
        return call(self, *tensors)

    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(Call, "__call__", noted)
        compiled(fn, Report())(*args)
    return made[0]


# In place


def test_a_cache_is_written_where_it_is() -> None:
    def step(cache: Any, at: Any, token: Any) -> Any:
        cache.index_copy_(0, at, token)
        return torch.softmax(cache @ token[0] * 2, -1)

    report = Report()
    cache, token, at = torch.zeros(7, 16), torch.randn(1, 16), torch.tensor([2])
    mine, theirs = cache.clone(), cache.clone()
    with torch.no_grad():
        fn = compiled(step, report)
        place = mine.data_ptr()
        for number in (2, 5):
            at.fill_(number)
            torch.testing.assert_close(fn(mine, at, token), step(theirs, at, token))
            assert torch.equal(mine, theirs) and mine.data_ptr() == place
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            fn(mine, at, token)
        operations = [event.name for event in profile.events()]
    assert "aten::index_copy_" in operations
    assert not {"aten::copy_", "aten::clone", "aten::index_copy"} & set(operations)


@pytest.mark.parametrize("reads", ["old behind it", "a result", "itself"])
def test_old_contents_that_are_read_again_stay(reads: str) -> None:
    def step(cache: Any, at: Any, token: Any) -> Any:
        old = cache.clone()
        if reads == "itself":
            cache.copy_(torch.index_copy(cache, 0, at, cache[3:4]))
            return cache.sum() * 2 + 1
        cache.index_copy_(0, at, token)
        return (old * 2 + cache) if reads == "old behind it" else cache * 1

    cache, token, at = torch.randn(7, 16), torch.randn(1, 16), torch.tensor([2])
    mine, theirs = cache.clone(), cache.clone()
    with torch.no_grad():
        torch.testing.assert_close(
            compiled(step, Report())(mine, at, token), step(theirs, at, token)
        )
    assert torch.equal(mine, theirs)


# Vectors


@pytest.mark.covering(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(512,), (1, 512), (1, 1, 512)])
@pytest.mark.parametrize("has_bias", [False, True])
def test_a_layer_of_one_row_is_a_reduction(shape: Any, dtype: Any, has_bias: bool) -> None:
    x, w = torch.randn(shape).to(dtype), (torch.randn(300, 512) / 20).to(dtype)
    b = torch.randn(300).to(dtype) if has_bias else None
    report = Report()

    def fn(x: Any, w: Any, b: Any) -> Any:
        return F.silu(F.linear(x, w, b))

    with torch.no_grad():
        found = compiled(fn, report, Settings())(x, w, b)
        exact = fn(*(None if each is None else each.double() for each in (x, w, b)))
    torch.testing.assert_close(found.double(), exact, rtol=1e-2, atol=1e-2)
    assert found.shape == exact.shape and "mv" in report.parts[0].operations
    assert "T.reduce_sum" in report.source


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("depth", "columns"), [(512, 192), (130, 1024), (97, 1536)])
def test_a_row_times_a_matrix_is_one_kernel(depth: int, columns: int, dtype: Any) -> None:
    x, w = torch.randn(1, depth).to(dtype), (torch.randn(depth, columns) / 20).to(dtype)
    b = torch.randn(columns).to(dtype)
    for fn, names in ((torch.addmm, ("addmm",)), (lambda b, x, w: x @ w, ("mm",))):
        report = Report()
        with torch.no_grad():
            made = compiled(fn, report, Settings())(b, x, w)
        near = {"rtol": 1e-2, "atol": 1e-2} if dtype == torch.bfloat16 else {}
        torch.testing.assert_close(made, fn(b, x, w), **near)
        assert [part.operations for part in report.parts] == [names], report
        assert "T.serial" in report.source


def test_products_of_more_rows_or_of_other_orders_are_no_vectors() -> None:
    for fn, dtype in (
        (lambda x, w: x[:2] @ w.t(), torch.bfloat16),
        (lambda x, w: x[:1] @ w, torch.bfloat16),
    ):
        report = Report()
        x, w = torch.randn(3, 128).to(dtype), torch.randn(128, 128).to(dtype)
        with torch.no_grad():
            near = {"rtol": 1e-2, "atol": 1e-1}
            torch.testing.assert_close(compiled(fn, report)(x, w), fn(x, w), **near)
        assert "mv" not in str(report)


# Forms


def test_layers_that_are_alike_are_one_kernel() -> None:
    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = torch.nn.LayerNorm(64)

        def forward(self, x: Any) -> Any:
            return x + torch.tanh(self.norm(x)) * 2

    model = torch.nn.Sequential(Block(), Block(), Block())
    for block in model:
        torch.nn.init.normal_(block.norm.weight)
    report = Report()
    x = torch.randn(5, 64)
    with torch.no_grad():
        torch.testing.assert_close(compiled(model, report)(x), model(x))
    assert len(report.parts) == 1
    assert {each.kernel for each in report.operations} == {report.parts[0].name}


def test_a_form_is_the_text_but_for_names() -> None:
    text = "# a\n@T.prim_func\ndef f(x: T.Tensor((4,), T.float32)):\n    y = T.exp(x[0])\n"
    other = text.replace("# a", "# b").replace("f(", "g(").replace("x", "w").replace("ewp", "exp")
    assert form_of(text) == form_of(other.replace("y", "x").replace("txpe", "type"))
    for changed in ("4", "float32", "exp", "prim_func"):
        assert form_of(text) != form_of(text.replace(changed, "8" if changed == "4" else "log"))
    assert form_of(text) != form_of(text.replace("x[0]", "y[0]"))


# What is stored


def test_what_only_a_reduction_elsewhere_reads_is_not_stored() -> None:
    def fn(x: Any, w: Any, residual: Any) -> Any:
        y = x @ w.t() + residual
        return y, torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6) * y

    report = Report()
    args = torch.randn(48, 32), torch.randn(64, 32), torch.randn(48, 64)
    with torch.no_grad():
        for mine, theirs in zip(compiled(fn, report)(*args), fn(*args), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)
    operations = [part.operations for part in report.parts]
    assert operations == [("mm", "add"), ("pow", "mean", "add", "rsqrt", "mul")]


# Trials


def _mlp(x: Any, a: Any, b: Any) -> Any:
    return torch.relu(x @ a.t()) @ b.t() + x


@pytest.mark.parametrize("kernel_is_faster", [True, False])
def test_a_product_that_is_slower_than_torchs_runs_in_torch(
    kernel_is_faster: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def times(calls: Any, sets: Any) -> list[float]:
        results = [call(*sets[0]) for call in calls]
        torch.testing.assert_close(results[0], results[1][0], rtol=1e-3, atol=1e-3)  # same work
        return [1e-3, 2e-3] if kernel_is_faster else [2e-3, 1e-3]

    monkeypatch.setattr(trials, "_times", times)
    monkeypatch.setattr(backend, "graph_trial", lambda *_: "")
    x, a, b = torch.randn(128, 256), torch.randn(512, 256) / 16, torch.randn(256, 512) / 22
    report = Report()
    state = torch.get_rng_state()
    with torch.no_grad():
        found = compiled(_mlp, report)(x, a, b)
    assert torch.equal(torch.get_rng_state(), state)
    torch.testing.assert_close(found, _mlp(x, a, b))
    if kernel_is_faster:
        assert not report.in_torch
        assert [part.operations for part in report.parts] == [("mm", "relu"), ("mm", "add")]
    else:
        reason = "measured: torch takes 1 ms, a kernel 2 ms"
        assert report.in_torch == [("aten.mm.default", reason)] * 2
        assert [part.operations for part in report.parts] == [("relu",), ("add",)]


def test_a_vector_that_torch_multiplies_faster_leaves_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trials, "_times", lambda *_: [2e-3, 1e-3])
    monkeypatch.setattr(backend, "graph_trial", lambda *_: "")
    x, w = torch.randn(1, 1024).bfloat16(), (torch.randn(2048, 1024) / 32).bfloat16()
    report = Report()
    with torch.no_grad():
        found = compiled(lambda x, w: torch.tanh(F.linear(x, w)) * 2, report)(x, w)
        near = {"rtol": 2e-2, "atol": 2e-2}
        torch.testing.assert_close(found, torch.tanh(F.linear(x, w)) * 2, **near)
    assert report.in_torch == [("aten.mv.default", "measured: torch takes 1 ms, a kernel 2 ms")]
    assert [part.operations for part in report.parts] == [("tanh", "mul")]


def test_kernels_that_are_kept_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    x, a, b = torch.randn(128, 256), torch.randn(512, 256) / 16, torch.randn(256, 512) / 22
    monkeypatch.setattr(trials, "_times", lambda *_: [2e-3, 1e-3])
    with torch.no_grad():
        given_back = tw.tile(_mlp, x, a, b)
        assert not given_back.kernels
        with pytest.raises(ArgumentError, match="keep_slower=True keeps the kernels"):
            given_back["mm_relu"]
        monkeypatch.setattr(trials, "_times", lambda *_: pytest.fail("it was measured"))
        kept = tw.tile(_mlp, x, a, b, keep_slower=True)
        torch.testing.assert_close(kept(x, a, b), _mlp(x, a, b))
    assert not kept.report.in_torch and len(kept.kernels) == 2


def test_little_work_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "_times", lambda *_: pytest.fail("it was measured"))
    monkeypatch.setattr(backend, "graph_trial", lambda *_: "")
    x, a, b = torch.randn(32, 64), torch.randn(64, 64), torch.randn(64, 64)
    with torch.no_grad():
        torch.testing.assert_close(compiled(_mlp, Report())(x, a, b), _mlp(x, a, b))


@pytest.mark.parametrize("kernels_are_faster", [True, False])
def test_a_graph_that_is_slower_with_kernels_runs_as_it_was_captured(
    kernels_are_faster: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def times(calls: Any, sets: Any) -> list[float]:
        mine, theirs = (call(*[each.clone() for each in sets[0]]) for call in calls)
        torch.testing.assert_close(mine, theirs)
        return [1e-3, 2e-3] if kernels_are_faster else [2e-3, 1e-3]

    def fn(cache: Any, x: Any) -> Any:
        cache.add_(1)
        return torch.exp(x) * 2 + cache

    monkeypatch.setattr(trials, "_times", times)
    mine, theirs, x = torch.zeros(8), torch.zeros(8), torch.randn(4, 8)
    report = Report()
    with torch.no_grad():
        call = compiled(fn, report)
        for _ in range(2):  # what is measured does not touch the user's tensors
            torch.testing.assert_close(call(mine, x), fn(theirs, x))
            assert torch.equal(mine, theirs)
    assert bool(report.parts) == kernels_are_faster == bool(report.forms)
    if not kernels_are_faster:
        reason = "measured: the whole graph takes torch 1 ms, with kernels 2 ms"
        assert {why for _, why in report.in_torch} == {reason}


def test_a_trial_draws_no_random_numbers_of_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    def fn(x: Any) -> Any:
        return torch.exp(x + torch.rand(8)) * 2

    monkeypatch.setattr(trials, "_times", _times)
    call = compiled(fn, Report())
    with torch.no_grad():
        torch.manual_seed(5)
        first = call(torch.zeros(8))
        torch.manual_seed(5)
        assert torch.equal(call(torch.zeros(8)), first)
        torch.manual_seed(5)
        torch.testing.assert_close(fn(torch.zeros(8)), first)


def test_an_operator_that_writes_elsewhere_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Any] = []

    @torch.library.custom_op("tests_trials::count", mutates_args=("counter",))
    def count(counter: torch.Tensor, x: torch.Tensor) -> None:
        written.append(counter.add_(1))

    def fn(counter: Any, x: Any) -> Any:
        count(counter, x)
        return torch.exp(x) * 2 + counter

    monkeypatch.setattr(trials, "_times", _times)
    counter, x = torch.zeros(8), torch.zeros(8)
    with torch.no_grad():
        found = compiled(fn, Report())(counter, x)
    assert len(written) == 1 and torch.equal(found, torch.full((8,), 3.0))


def test_calls_are_timed_in_turns_with_tensors_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr(trials.time, "perf_counter", lambda: next(clock))
    taken: list[tuple[str, int]] = []

    def first(number: int) -> None:
        taken.append(("first", number))

    def second(number: int) -> None:
        taken.append(("second", number))
        next(clock)

    assert _times([first, second], [[0], [1], [2]]) == [1, 2]
    assert taken[2:6] == [("first", 0), ("second", 1), ("first", 2), ("second", 0)]


# Constants


def test_what_follows_from_no_input_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def fn(x: Any) -> Any:
        mask = torch.ones(32, 32, dtype=torch.bool).tril()
        return torch.where(mask, x, float("-inf")).softmax(-1) * (torch.arange(32) % 3)

    x = torch.randn(32, 32)
    with torch.no_grad():
        report = Report()
        call = compiled(fn, report)
        torch.testing.assert_close(call(x), fn(x))
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            torch.testing.assert_close(call(x), fn(x))
    names = [event.name for event in profile.events()]
    assert names.count("aten::tril") == 1  # of `fn`, that it is compared with
    assert not {"aten.arange.default", "aten.tril.default"} & {name for name, _ in report.in_torch}


@pytest.mark.parametrize(
    "view", [lambda x: x, lambda x: x.view(2, 16), lambda x: x[3:].unsqueeze(0)]
)
def test_a_constant_that_is_a_result_is_new_in_each_call(view: Any) -> None:
    def fn(x: Any) -> Any:
        places = torch.arange(32)
        return view(places), x * 2 + places

    call = compiled(fn, Report())
    x = torch.randn(32)
    with torch.no_grad():
        call(x)[0].zero_()
        for mine, theirs in zip(call(x), fn(x), strict=True):
            torch.testing.assert_close(mine, theirs)


def test_random_numbers_are_no_constants() -> None:
    def fn(x: Any) -> Any:
        return x + torch.rand(32) * 2

    call = compiled(fn, Report())
    with torch.no_grad():
        assert not torch.equal(call(torch.zeros(32)), call(torch.zeros(32)))


# Views


def _operations(fn: Any, *args: Any, near: Any = None) -> list[str]:
    """The operations of torch in a call of a compiled function, which agrees with it."""
    call = compiled(fn, Report())
    with torch.no_grad():
        for _ in range(2):
            mine = call(*(each.clone() for each in args))
        theirs = fn(*(each.clone() for each in args))
        torch.testing.assert_close(mine, theirs, **(near or {}))
        assert mine.stride() == theirs.stride()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            call(*args)
    return [event.name for event in profile.events()]


def test_a_view_of_views_is_one() -> None:
    def heads(x: Any) -> Any:
        y = torch.exp(x) * 2 + 1
        y = y.view(2, 3, 4, 8).transpose(1, 2).unsqueeze(1)
        return torch.cumprod(y[..., 2:], -1)

    names = _operations(heads, torch.randn(6, 32))
    views = {"aten::transpose", "aten::unsqueeze", "aten::view", "aten::slice"}
    assert not views & set(names) and "aten::as_strided" in names


def test_a_view_that_several_read_is_one() -> None:
    def products(x: Any, v: Any, w: Any) -> Any:
        y = (torch.exp(x) * 2 + 1).view(2, 6, 32)
        return torch.bmm(y, v).sum() + torch.bmm(y.view(2, 6, 32), w)

    names = _operations(products, torch.randn(12, 32), torch.randn(2, 32, 8), torch.randn(2, 32, 8))
    assert names.count("aten::view") == 1


def test_copies_of_what_nobody_writes_to_are_not_made() -> None:
    def padded(x: Any) -> Any:
        y = torch.sort(F.pad(torch.exp(x) * 2 + 1, (0, 0)), -1).values.clone().view(3, 64)
        return torch.cumprod(y, -1), x.clone()

    args = torch.rand(6, 32)
    mine, copy = compiled(padded, Report())(args)
    torch.testing.assert_close(mine, padded(args)[0])
    assert copy.data_ptr() != args.data_ptr()  # the caller's own
    call = compiled(padded, Report(), Settings())
    with torch.no_grad():
        call(args)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            call(args)
    names = [event.name for event in profile.events()]
    assert not {"aten::clone", "aten::constant_pad_nd"} & set(names)  # one is in the kernel


def test_copies_of_what_is_written_to_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[str] = []

    def drop(graph: Any) -> None:
        drop_copies(graph)
        kept.extend(str(node.target) for node in graph.nodes)

    monkeypatch.setattr(backend, "drop_copies", drop)

    def step(cache: Any, token: Any) -> Any:
        before = cache.clone()
        cache.mul_(2).add_(token)
        return torch.cumprod(before, -1)

    cache, token = torch.rand(7, 16), torch.rand(16)
    mine, theirs = cache.clone(), cache.clone()
    with torch.no_grad():
        made = compiled(step, Report())(mine, token)
        torch.testing.assert_close(made, step(theirs, token))
    torch.testing.assert_close(mine, theirs)
    assert "aten.clone.default" in kept


def test_views_of_a_cache_that_lies_in_a_larger_one() -> None:
    def step(cache: Any, at: Any, token: Any) -> Any:
        cache.index_copy_(0, at, token)
        return torch.cumprod(cache.view(7, 2, 8).transpose(0, 1).unsqueeze(0), -1)

    caches, token, at = torch.rand(3, 7, 16), torch.rand(1, 16), torch.tensor([2])
    mine, theirs = caches.clone(), caches.clone()
    call = compiled(step, Report(), Settings())
    with torch.no_grad():
        for layer in (0, 1, 2):
            made = call(mine[layer], at, token)
            torch.testing.assert_close(made, step(theirs[layer], at, token))
    assert torch.equal(mine, theirs)


def test_layers_of_one_row_are_viewed_once() -> None:
    def queries(x: Any, w: Any) -> Any:
        y = F.linear(x, w).view(1, 1, 4, 64).transpose(1, 2)
        return torch.sort(y, -1).values

    args = torch.rand(1, 1, 512).bfloat16(), (torch.rand(256, 512) / 64).bfloat16()
    names = _operations(queries, *args, near={"rtol": 1e-2, "atol": 1e-2})
    assert not {"aten::transpose", "aten::view", "aten::t"} & set(names)


def test_a_copy_compiles_for_itself() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU())
    tiled, x = tw.tile(net, keep_slower=True), torch.randn(64, 32)
    tiled.name = "net"
    tiled(x)
    for copied in (copy.deepcopy(tiled), pickle.loads(pickle.dumps(tiled))):
        assert (copied.name, copied.report.parts) == ("net", [])
        with torch.no_grad():
            copied.fn[0].weight.zero_()
            torch.testing.assert_close(copied(x), F.gelu(net[0].bias).expand(64, 64))
            torch.testing.assert_close(tiled(x), net(x))
        assert copied.report.parts and copied._options == tiled._options
