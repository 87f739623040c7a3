"""The machine's ceilings: how they follow from runs, and how they are kept."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tileworkbench.bench import ceiling_samples, ceilings
from tileworkbench.bench.alone import alone
from tileworkbench.bench.ceiling_samples import Rate
from tileworkbench.bench.ceilings import (
    LEVELS,
    TYPES,
    best_of,
    known_machine,
    machine,
    machine_from_json,
    machine_key,
    machine_to_json,
    to_ceilings,
    to_machine,
)
from tileworkbench.bench.disturbance import Disturbance
from tileworkbench.bench.points import BANDWIDTH, Ceiling, Machine
from tileworkbench.compiler.device.host import processor
from tileworkbench.compiler.device.host.cache import default_cache
from tileworkbench.compiler.device.host.processor import CacheSizes
from tileworkbench.compiler.device.host.threads import set_num_threads

MS = 1_000_000
SAMPLE = Machine(
    "Test, 2 cores",
    (Ceiling("L1", 400.5, "GB/s", 1), Ceiling("float32", 250.25, "GFLOP/s", 2)),
    "by hand",
)


class Measurements(list[Machine]):
    """What was measured, and what will be."""

    def __init__(self) -> None:
        super().__init__()
        self.planned: list[Machine] = []


@pytest.fixture
def measurements(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Measurements]:
    """An empty cache, and a measurement; the list has what each of them found.

    A test may put into `planned` of the list what they find in turn, else it is `SAMPLE`.
    """
    done = Measurements()

    def fake() -> Machine:
        done.append(done.planned.pop(0) if done.planned else SAMPLE)
        return done[-1]

    monkeypatch.setenv("TILEWORKBENCH_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TILEWORKBENCH_DISABLE_CACHE", raising=False)
    monkeypatch.setattr(ceilings, "measure_machine", fake)
    monkeypatch.setattr(ceilings, "_known", {})
    yield done


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a new process knows."""
    monkeypatch.setattr(ceilings, "_known", {})


def test_json_round_trip() -> None:
    assert machine_from_json(machine_to_json(SAMPLE)) == SAMPLE


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"schema": 0}, "schema 0 is not 8"),
        ({"ceilings": [{"name": "L1"}]}, "this is not a measured machine: KeyError('value')"),
        ({"ceilings": 3}, "this is not a measured machine: TypeError"),
        ({"note": None, "ceilings": [[]]}, "this is not a measured machine: TypeError"),
    ],
)
def test_json_that_is_something_else(change: dict[str, object], reason: str) -> None:
    text = json.dumps({**json.loads(machine_to_json(SAMPLE)), **change})
    with pytest.raises(ValueError) as caught:
        machine_from_json(text)
    assert str(caught.value).startswith(reason)


@pytest.mark.parametrize(
    "change",
    [
        {"value": "400"},
        {"value": -1.0},
        {"value": float("nan")},
        {"unit": "MB/s"},
        {"threads": "2"},
        {"spread": -0.1},
        {"spread": "1"},
        {"low": -1.0},
    ],
)
def test_json_with_a_bad_ceiling(change: dict[str, object]) -> None:
    data = json.loads(machine_to_json(SAMPLE))
    data["ceilings"][0] |= change
    with pytest.raises(ValueError, match="ceiling"):
        machine_from_json(json.dumps(data))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"schema": 1}'])
def test_text_that_is_no_machine(text: str) -> None:
    with pytest.raises(ValueError):
        machine_from_json(text)


def test_a_machine_is_measured_once(
    measurements: Measurements, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert machine() is machine()
    forget(monkeypatch)
    assert machine() == SAMPLE
    assert len(measurements) == 1


def test_who_waits_takes_what_was_measured_meanwhile(
    measurements: Measurements, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, begun = ceilings._read, threading.Event()

    def reading(key: str) -> Machine | None:
        kept = read(key)
        begun.set()
        return kept

    monkeypatch.setattr(ceilings, "_read", reading)
    with alone():
        waiting = threading.Thread(target=machine)
        waiting.start()
        assert begun.wait(60)
        default_cache().put(ceilings.machine_key(), machine_to_json(SAMPLE).encode())
    waiting.join()
    assert machine() == SAMPLE and measurements == []


def test_measure_does_it_again(measurements: Measurements) -> None:
    machine()
    machine(measure=True)
    assert len(measurements) == 2


def test_a_corrupt_entry_is_measured_anew(
    measurements: Measurements, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    machine()
    (entry,) = tmp_path.iterdir()
    entry.write_bytes(entry.read_bytes()[:-3])
    forget(monkeypatch)
    assert machine() == SAMPLE
    assert len(measurements) == 2
    forget(monkeypatch)
    machine()
    assert len(measurements) == 2


@pytest.mark.parametrize("content", [b"\xff", b"{}", b'{"schema": 99}'])
def test_an_entry_of_another_version_is_measured_anew(
    measurements: Measurements, content: bytes
) -> None:
    assert default_cache().put(machine_key(), content)
    assert machine() == SAMPLE
    assert len(measurements) == 1


BUSY = "busy or shared machine: told so"


def seen(l1: float, peak: float, busy: bool = False, scaled: bool = False) -> Machine:
    """`SAMPLE` with these values; of a busy machine, the second may be a multiple of another."""
    first, second = SAMPLE.ceilings
    found = (replace(first, value=l1), replace(second, value=peak, scaled=scaled))
    return replace(SAMPLE, ceilings=found, doubt=BUSY if busy else "")


def test_nobody_waits_twice_on_a_busy_machine(
    measurements: Measurements, monkeypatch: pytest.MonkeyPatch
) -> None:
    measurements.planned += [seen(300.0, 200.0, busy=True)]
    assert machine() is machine()
    forget(monkeypatch)
    assert machine() == seen(300.0, 200.0, busy=True)
    assert len(measurements) == 1


def test_a_quiet_measurement_replaces_a_busy_one(
    measurements: Measurements, monkeypatch: pytest.MonkeyPatch
) -> None:
    measurements.planned += [seen(300.0, 999.0, busy=True, scaled=True), seen(400.0, 200.0)]
    machine()
    assert machine(measure=True) == seen(400.0, 200.0)
    measurements.planned += [seen(390.0, 900.0, busy=True, scaled=True)]
    assert machine(measure=True) == seen(400.0, 200.0)
    forget(monkeypatch)
    assert machine() == seen(400.0, 200.0)


@pytest.mark.parametrize("busy", [False, True])
def test_the_best_of_each_ceiling_stays(measurements: Measurements, busy: bool) -> None:
    measurements.planned += [seen(300.0, 202.0, busy), seen(303.0, 200.0, busy)]
    machine()
    found = machine(measure=True)
    assert [ceiling.value for ceiling in found.ceilings] == [303.0, 202.0]
    assert [ceiling.spread for ceiling in found.ceilings] == pytest.approx([0.0, 0.01])
    assert found.busy == busy


def test_what_a_busy_machine_reached_is_possible() -> None:
    """A quiet machine that never reached it is no quiet one."""
    found = best_of(seen(300.0, 250.0, busy=True), seen(310.0, 200.0))
    assert [ceiling.value for ceiling in found.ceilings] == [310.0, 250.0]
    assert found == best_of(seen(310.0, 200.0), seen(300.0, 250.0, busy=True))
    assert found.doubt == (
        "busy or shared machine: ceilings are the best seen, ±25 % (the best sample of float32, "
        "2 T, is 25 % above the third best); '%tile peaks --measure' measures again and keeps the "
        "better"
    )


def test_samples_several_times_apart_promise_no_percentage() -> None:
    found = best_of(seen(300.0, 250.0, busy=True), seen(310.0, 100.0))
    assert found.doubt == (
        "busy or shared machine: ceilings are the best seen, maybe far too low (the best sample "
        "of float32, 2 T, is 2.5 times the third best); '%tile peaks --measure' measures again "
        "and keeps the better"
    )


def test_two_quiet_measurements_that_disagree_were_not_quiet() -> None:
    assert best_of(seen(300.0, 250.0), seen(300.0, 200.0)).busy
    assert not best_of(seen(300.0, 204.0), seen(300.0, 200.0)).busy


def test_a_multiple_yields_to_what_was_measured() -> None:
    """Also to a smaller one, of a machine that was busy as well."""
    measured, multiple = seen(300.0, 200.0, busy=True), seen(300.0, 250.0, busy=True, scaled=True)
    assert best_of(measured, multiple) == best_of(multiple, measured) == measured


def test_what_is_known_is_asked_without_measuring(
    measurements: Measurements, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ceilings.known_machine() is None and measurements == []
    machine()
    assert ceilings.known_machine() == SAMPLE
    forget(monkeypatch)
    assert ceilings.known_machine() == SAMPLE and len(measurements) == 1


def test_without_a_cache_it_is_measured_per_process(
    measurements: Measurements, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWORKBENCH_DISABLE_CACHE", "1")
    machine()
    forget(monkeypatch)
    machine()
    assert len(measurements) == 2


def test_what_one_thread_can_do_is_the_same_whatever_launches_may_use(
    measurements: Measurements, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measured in a bad hour with one thread, and in a good one with all."""

    def of(value: float, threads: int) -> Machine:
        counts = sorted({1, threads})
        return Machine("sample", tuple(Ceiling("L3", value * n, "GB/s", n) for n in counts))

    def one_thread() -> float:
        ceiling = machine().find("L3", BANDWIDTH, 1)
        assert ceiling is not None
        return ceiling.value

    try:
        set_num_threads(1)
        measurements.planned = [of(70.0, 1), of(98.0, processor.core_count())]
        assert one_thread() == 70.0
        set_num_threads(processor.core_count())
        assert one_thread() == 98.0
        set_num_threads(1)
        forget(monkeypatch)
        assert one_thread() == 98.0
        assert known_machine() == machine()
    finally:
        set_num_threads(None)


def test_key_follows_what_the_ceilings_depend_on(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {machine_key()}
    for name, value in [
        ("cpu_name", "other"),
        ("cpu_feature_string", "+none"),
        ("llvm_version", "llvmlite 0"),
        ("machine_name", "Other"),
        ("core_count", 1023),
        ("cache_sizes", CacheSizes(1, 2, 3)),
    ]:
        with monkeypatch.context() as patch:
            patch.setattr(processor, name, lambda value=value: value)
            keys.add(machine_key())
    set_num_threads(1023)
    keys.add(machine_key())
    set_num_threads(None)
    assert len(keys) == 8
    assert machine_key() in keys


def test_all_threads_are_never_below_one() -> None:
    found = to_ceilings("DRAM", [Rate(50.0, True), Rate(40.0, True)], [1, 2])
    assert found == [Ceiling("DRAM", 50.0, "GB/s", 1), Ceiling("DRAM", 50.0, "GB/s", 2)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("float32", 400.0), ("L1", 400.0), ("L2", 400.0), ("L3", 130.0), ("DRAM", 130.0)],
)
def test_what_a_core_has_of_its_own_is_multiplied_when_cores_were_missing(
    name: str, expected: float
) -> None:
    found = to_ceilings(name, [Rate(100.0, True), Rate(130.0, False)], [1, 4])
    assert [ceiling.value for ceiling in found] == [100.0, expected]
    assert [ceiling.scaled for ceiling in found] == [False, expected == 400.0]
    assert found[0].unit == ("GFLOP/s" if name == "float32" else "GB/s")


@pytest.mark.parametrize("name", ["float32", "DRAM"])
def test_one_thread_can_do_what_each_of_several_did(name: str) -> None:
    found = to_ceilings(name, [Rate(100.0, True), Rate(480.0, True)], [1, 4])
    assert [ceiling.value for ceiling in found] == [120.0, 480.0]
    assert not found[0].scaled


def test_a_measured_rate_is_not_multiplied() -> None:
    found = to_ceilings("float32", [Rate(100.0, True), Rate(130.0, True)], [1, 4])
    assert found[1].value == 130.0 and not found[1].scaled


RATES = {
    **{("L1", 1): Rate(100.0, True, 0.01), ("L1", 2): Rate(190.0, True, 0.02)},
    **{("float32", 1): Rate(30.0, True), ("float32", 2): Rate(60.0, True)},
}


def test_a_quiet_machine_has_no_doubt() -> None:
    found = to_machine("m", RATES, [1, 2], Disturbance(others=0.01, host=0.005))
    assert not found.busy and found.doubt == ""
    names = [(ceiling.name, ceiling.threads) for ceiling in found.ceilings]
    assert names == [(name, n) for name in ("L1", "float32", "float16") for n in (1, 2)]


def test_a_guest_promises_only_what_its_cores_have_of_their_own() -> None:
    """Memory that changes by half is told of with what was seen, and is no doubt of the rest."""
    memory = {("L3", 1): Rate(90.0, True, 0.0, 88.0), ("L3", 2): Rate(180.0, True, 0.0, 170.0)}
    memory |= {("DRAM", 1): Rate(50.0, True, 0.1, 45.0), ("DRAM", 2): Rate(90.0, True, 0.7, 52.0)}
    own = to_machine("m", {**RATES, **memory}, [1, 2], Disturbance())
    assert own.busy and own.shared == () and own.caveat == ""
    guest = to_machine("m", {**RATES, **memory}, [1, 2], Disturbance(), guest=True)
    assert not guest.busy
    assert [(each.name, each.seen) for each in guest.shared] == [
        ("L3", "88.0 to 90.0 GB/s"),
        ("L3", "170.0 to 180.0 GB/s"),
        ("DRAM", "45.0 to 50.0 GB/s"),
        ("DRAM", "52.0 to 90.0 GB/s"),
    ]
    assert guest.caveat == (
        "best seen of L3 and DRAM, on which other guests of the host may draw too"
    )
    assert guest.caption == f"m; {guest.caveat}"
    assert machine_from_json(machine_to_json(guest)) == guest


def test_the_least_and_the_most_of_all_measurements_are_kept() -> None:
    def found(low: float, high: float) -> Machine:
        memory = Ceiling("DRAM", high, "GB/s", 2, 0.01, False, low, shared=True)
        return replace(SAMPLE, ceilings=(*SAMPLE.ceilings, memory))

    first, second = found(52.0, 55.0), found(80.0, 91.0)
    for kept in (best_of(first, second), best_of(second, first)):
        assert kept.ceilings[-1].seen == "52.0 to 91.0 GB/s" and not kept.busy


@pytest.mark.parametrize(("l2", "doubtful"), [(2.0, True), (1.0, False)])
def test_cores_that_are_threads_of_one_core_are_seen_by_l2(l2: float, doubtful: bool) -> None:
    gains = {"L1": 1.0, "L2": l2, "float32": 1.0}
    rates = {
        (name, threads): Rate(100.0 * (gain if threads == 2 else 1.0), True)
        for name, gain in gains.items()
        for threads in (1, 2)
    }
    found = to_machine("m", rates, [1, 2], Disturbance())
    assert ("1.0 times the L1 of one, but 2.0 times the L2" in found.doubt) == doubtful


@pytest.mark.parametrize(
    ("rate", "own", "doubtful"),
    [(179.0, True, True), (193.0, True, False), (179.0, False, False), (110.0, False, False)],
)
def test_two_cores_with_an_l2_each_have_twice_of_it(rate: float, own: bool, doubtful: bool) -> None:
    rates = {**RATES, ("L2", 1): Rate(100.0, True), ("L2", 2): Rate(rate, True)}
    found = to_machine("m", rates, [1, 2], Disturbance(), own_l2=own)
    said = f"all threads have {rate / 100:.2f} times the L2 of one, though each has its own"
    assert (said in found.doubt) == found.busy == doubtful


@pytest.mark.parametrize(("says", "shared"), [(True, True), (None, True), (False, False)])
def test_a_machine_that_may_be_a_guest_counts_as_one(
    monkeypatch: pytest.MonkeyPatch, says: bool | None, shared: bool
) -> None:
    rates = {("DRAM", 1): Rate(50.0, True), ("L1", 1): Rate(100.0, True)}
    monkeypatch.setattr(ceilings, "measure_rates", lambda cases: rates)
    monkeypatch.setattr(ceilings, "get_num_threads", lambda: 1)
    monkeypatch.setattr(processor, "is_guest", lambda: says)
    found = ceilings.measure_machine()
    assert [each.shared for each in found.ceilings] == [False, shared]


@pytest.mark.parametrize(
    ("rate", "disturbance", "spread", "reason"),
    [
        (
            *(Rate(190.0, True), Disturbance(others=0.48), 5),
            "other programs took 48 % of the processor",
        ),
        (Rate(190.0, True), Disturbance(host=0.03), 5, "the host took 3 % of it"),
        (
            *(Rate(190.0, True, 0.31), Disturbance(), 31),
            "the best sample of L1, 2 T, is 31 % above the third best",
        ),
        (
            *(Rate(190.0, False), Disturbance(), 5),
            "some runs did not have all their cores, so arithmetic, L1 and L2 of all threads may "
            "be multiples of one thread's",
        ),
        (
            *(Rate(140.0, True), Disturbance(), 5),
            "all threads have 1.4 times the L1 of one, but 2.0 times the float32",
        ),
    ],
)
def test_a_busy_machine_says_what_was_seen(
    rate: Rate, disturbance: Disturbance, spread: int, reason: str
) -> None:
    found = to_machine("m", {**RATES, ("L1", 2): rate}, [1, 2], disturbance)
    assert found.doubt == (
        f"busy or shared machine: ceilings are the best seen, ±{spread} % ({reason}); "
        "'%tile peaks --measure' measures again and keeps the better"
    )


def test_a_real_measurement_has_every_level_and_type(monkeypatch: pytest.MonkeyPatch) -> None:
    # Short: what it says of this machine does not matter here.
    monkeypatch.setattr(ceiling_samples, "_RUN_NS", 20_000)
    monkeypatch.setattr(ceiling_samples, "_LEAST_SWEEPS", 1)
    monkeypatch.setattr(ceiling_samples, "_PATIENCE_NS", 0)
    monkeypatch.setattr(ceiling_samples, "_SMALLEST_MEMORY_SET", 1 << 20)
    monkeypatch.setattr(ceiling_samples, "_LARGEST_MEMORY_SET", 1 << 20)
    found = ceilings.measure_machine()
    names = {ceiling.name for ceiling in found.ceilings}
    assert names | {"L3"} == {*LEVELS, *TYPES}
    assert all(ceiling.value > 0 for ceiling in found.ceilings)
    assert found.name == processor.machine_name()
    values = {(c.name, c.threads): c.value for c in found.ceilings}
    assert values["float16", 1] == values["float32", 1]
    assert "float16 is computed in float32" in found.note
    assert machine_from_json(machine_to_json(found)) == found
