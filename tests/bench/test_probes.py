"""The probes do the work that they are said to do: told from what they leave in memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tileworkbench.bench import probes
from tileworkbench.bench.arithmetic import (
    ARITHMETIC,
    arithmetic_probe,
    products_at_once,
    sums,
    write_factors,
)
from tileworkbench.bench.probes import (
    ARRAY_GAP,
    ProbeRunner,
    area_stride,
    chain_probe,
    touched_memory,
)
from tileworkbench.bench.streams import STREAMS, stream_probe
from tileworkbench.compiler.device.host.llvm import (
    LEVELS,
    NativeTarget,
    compile_assembly,
    native_target,
)
from tileworkbench.compiler.device.host.threads import set_num_threads
from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.emit.llvm.isa import Isa, isa_from_features

DTYPES = {"float32": np.float32, "float64": np.float64, "bfloat16": np.float32}
DTYPES |= {"int8": np.int32, "uint8": np.int32}


@pytest.fixture(params=LEVELS)
def target(request: pytest.FixtureRequest) -> NativeTarget:
    """Each level that this machine has."""
    try:
        return native_target(request.param)
    except UnsupportedError as error:
        pytest.skip(error.message)


def isa_of(target: NativeTarget) -> Isa:
    return isa_from_features(dict.fromkeys(target.features, True))


@pytest.mark.parametrize("kind", ARITHMETIC)
@pytest.mark.parametrize("repeats", [1, 250])
def test_each_sum_takes_its_products_once_per_repetition(
    target: NativeTarget, kind: str, repeats: int
) -> None:
    isa = isa_of(target)
    runner = ProbeRunner(arithmetic_probe(kind, isa), 2, target=target)
    for block in range(2):
        write_factors(runner.area(block), kind, isa)
    runner.run(repeats)
    for block in range(2):
        found = runner.area(block).view(DTYPES[kind])[: sums(kind, isa)]
        np.testing.assert_array_equal(found, repeats * products_at_once(kind, isa))


@pytest.mark.parametrize("kind", ARITHMETIC)
def test_operations_are_two_for_each_product(target: NativeTarget, kind: str) -> None:
    isa = isa_of(target)
    operations = arithmetic_probe(kind, isa).work
    assert operations == 2 * sums(kind, isa) * products_at_once(kind, isa)


@pytest.mark.parametrize(
    ("kind", "feature", "instruction"),
    [
        ("float32", "avx512f", "vfmadd"),
        ("float64", "avx512f", "vfmadd"),
        ("bfloat16", "avx512bf16", "vdpbf16ps"),
        ("int8", "avx512vnni", "vpdpbusd"),
        # LLVM joins PMADDWD and the addition where it can.
        ("uint8", "avx512vnni", "vpdpwssd"),
    ],
)
def test_the_loop_has_one_instruction_for_each_vector_of_sums(
    kind: str, feature: str, instruction: str
) -> None:
    target = native_target()
    if not target.has(feature):
        pytest.skip(f"this processor has no {feature}")
    isa = replace(isa_of(target), tiles=False)
    text = compile_assembly(arithmetic_probe(kind, isa).ir_text, target)
    lines = [line for line in text.splitlines() if instruction in line and "%zmm" in line]
    # LLVM writes the loop several times over, and what is left of it once.
    assert lines and len(lines) % 24 == 0
    assert not [line for line in text.splitlines() if "(%rsp)" in line and "%zmm" in line]


@pytest.mark.parametrize("streaming", [False, True])
def test_triad_computes_b_plus_three_c(target: NativeTarget, streaming: bool) -> None:
    size = 4096
    probe = stream_probe("triad", isa_of(target), streaming_stores=streaming)
    runner = ProbeRunner(probe, 2, size, target)
    rng = np.random.default_rng(7)
    for block in range(2):
        a, b, c = arrays(runner, block, size, 3)
        b[:] = rng.integers(-99, 99, b.shape)
        c[:] = rng.integers(-99, 99, c.shape)
    runner.run(2)
    for block in range(2):
        a, b, c = arrays(runner, block, size, 3)
        np.testing.assert_array_equal(a, b + 3 * c)
        assert b.any()
        assert c.any()


def arrays(runner: ProbeRunner, block: int, size: int, count: int) -> list[np.ndarray]:
    """The arrays of a stream's area as float32 views."""
    step = size + ARRAY_GAP
    area = runner.area(block)
    return [area[n * step : n * step + size].view(np.float32) for n in range(count)]


@pytest.mark.parametrize("streaming", [False, True])
def test_copy_writes_its_array_and_nothing_else(target: NativeTarget, streaming: bool) -> None:
    size = 2048
    probe = stream_probe("copy", isa_of(target), streaming_stores=streaming)
    runner = ProbeRunner(probe, 1, size, target)
    area = runner.area(0)
    area[:] = 9
    to, source = arrays(runner, 0, size, 2)
    source[:] = np.arange(source.size)
    runner.run(3)
    np.testing.assert_array_equal(to, source)
    np.testing.assert_array_equal(area[size : size + ARRAY_GAP], 9)
    np.testing.assert_array_equal(area[2 * size + ARRAY_GAP :], 9)


def test_read_sums_every_vector_once_per_repetition(target: NativeTarget) -> None:
    size = 8192
    isa = isa_of(target)
    runner = ProbeRunner(stream_probe("read", isa), 1, size, target)
    area = runner.area(0)
    values = area[:size].view(np.int32)
    values[:] = np.arange(values.size)
    runner.run(5)
    lanes = isa.lanes(4)
    found = area[size : size + 8 * 4 * lanes].view(np.int32)
    np.testing.assert_array_equal(found, 5 * values.reshape(-1, 8 * lanes).sum(axis=0))


@pytest.mark.parametrize("kind", STREAMS)
def test_work_of_a_stream_is_its_arrays(kind: str) -> None:
    assert stream_probe(kind, probes.host_isa()).work == {"read": 1, "copy": 2, "triad": 3}[kind]


@pytest.mark.parametrize("kind", ["copy", "triad"])
def test_streaming_stores_pass_the_caches(kind: str) -> None:
    isa = probes.host_isa()
    target = native_target()
    if not target.has("sse2"):
        pytest.skip("the instructions of x86")
    streaming = compile_assembly(stream_probe(kind, isa, streaming_stores=True).ir_text, target)
    plain = compile_assembly(stream_probe(kind, isa).ir_text, target)
    assert "movntps" in streaming and "sfence" in streaming
    assert "movnt" not in plain


def test_chain_depends_on_every_link() -> None:
    probe = chain_probe()
    runner = ProbeRunner(probe, 1)
    words = runner.area(0).view(np.uint64)
    words[:3] = (5, 0x123456789ABCDEF1, 0x0F0F3355AA77CC11)
    runner.run(3)
    value, mask = 5, 2**64 - 1
    for _ in range(3 * probe.work // 2):
        value = ((value + 0x123456789ABCDEF1) & mask) ^ 0x0F0F3355AA77CC11
    assert int(words[0]) == value


def test_the_clock_is_a_clock() -> None:
    assert 0.01 < probes.sample_clock() < 20


def test_every_block_has_pages_of_its_own() -> None:
    runner = ProbeRunner(stream_probe("triad", probes.host_isa()), 3, 1024)
    starts = [runner.area(block).ctypes.data for block in range(3)]
    assert all(start % 4096 == 0 for start in starts)
    assert starts[1] - starts[0] >= 3 * (1024 + ARRAY_GAP)


def test_repetitions_walk_one_area_after_the_other() -> None:
    probe = stream_probe("copy", probes.host_isa())
    stride = area_stride(2, 1024)
    memory = touched_memory(6 * stride + 4096)
    runner = ProbeRunner(probe, 1, 1024, memory=memory, in_turn=True)
    memory.fill(7)
    start = -memory.ctypes.data % 4096
    destinations = [memory[start + area * stride :][:1024] for area in range(6)]
    for destination in destinations:
        destination.fill(0)
    runner.run(4)
    assert [bool(each.all()) for each in destinations] == [True] * 4 + [False] * 2
    destinations[0].fill(0)
    runner.run(3)
    assert all(each.all() for each in destinations)


def test_areas_need_room() -> None:
    with pytest.raises(ValueError, match=r"^4096 bytes are too few for 24576 of areas$"):
        ProbeRunner(chain_probe(), 3, memory=np.zeros(4096, np.uint8))


def test_all_blocks_run_on_one_thread_too() -> None:
    isa = probes.host_isa()
    runner = ProbeRunner(arithmetic_probe("float32", isa), 3)
    for block in range(3):
        write_factors(runner.area(block), "float32", isa)
    set_num_threads(1)
    try:
        runner.run(4)
    finally:
        set_num_threads(None)
    found = [runner.area(block).view(np.float32)[: sums("float32", isa)] for block in range(3)]
    np.testing.assert_array_equal(np.stack(found), 4)
