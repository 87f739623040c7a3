from __future__ import annotations

import re
from pathlib import Path

import pytest

from tileworkbench.compiler.device.host import processor


def make_cache(root: Path, index: int, kind: str, level: str, size: str) -> None:
    folder = root / f"index{index}"
    folder.mkdir()
    for name, text in (("type", kind), ("level", level), ("size", size)):
        (folder / name).write_text(text + "\n")


def sizes_in(root: Path) -> dict[int, int]:
    return {level: cache.bytes_ for level, cache in processor._read_sysfs_caches(root).items()}


def test_reads_data_caches_of_each_level(tmp_path: Path) -> None:
    make_cache(tmp_path, 0, "Data", "1", "48K")
    make_cache(tmp_path, 1, "Instruction", "1", "32K")
    make_cache(tmp_path, 2, "Unified", "2", "2048K")
    make_cache(tmp_path, 3, "Unified", "3", "32M")
    assert sizes_in(tmp_path) == {1: 48 << 10, 2: 2 << 20, 3: 32 << 20}


def test_skips_cache_entries_it_cannot_read(tmp_path: Path) -> None:
    make_cache(tmp_path, 0, "Data", "one", "48K")
    make_cache(tmp_path, 1, "Data", "2", "big")
    (tmp_path / "index2").mkdir()
    make_cache(tmp_path, 3, "Data", "1", "512")
    assert sizes_in(tmp_path) == {1: 512}


def test_reads_how_a_cache_is_made(tmp_path: Path) -> None:
    make_cache(tmp_path, 0, "Data", "1", "48K")
    make_cache(tmp_path, 1, "Unified", "2", "2M")
    known = ("ways_of_associativity", "12"), ("coherency_line_size", "128")
    for name, text in (*known, ("shared_cpu_list", "0-2,8")):
        (tmp_path / "index0" / name).write_text(text + "\n")
    (tmp_path / "index1" / "ways_of_associativity").write_text("0\n")
    assert processor._read_sysfs_caches(tmp_path) == {
        1: processor.Cache(1, 48 << 10, 12, 128, frozenset({0, 1, 2, 8})),
        2: processor.Cache(2, 2 << 20, 8, 64),
    }


def test_a_level_that_the_system_leaves_out_is_typical(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_cache(tmp_path, 0, "Unified", "2", "2M")
    monkeypatch.setattr(processor, "_SYSFS_CACHES", tmp_path)
    levels = [(cache.level, cache.bytes_) for cache in processor.caches.__wrapped__()]
    assert levels == [(1, 32 << 10), (2, 2 << 20)]


@pytest.fixture
def no_sysfs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(processor, "_SYSFS_CACHES", tmp_path / "absent")
    monkeypatch.setattr(processor, "_CPUINFO", tmp_path / "absent")


def test_typical_sizes_where_the_system_tells_nothing(no_sysfs: None) -> None:
    levels = [(cache.level, cache.bytes_) for cache in processor.caches.__wrapped__()]
    assert levels == [(1, 32 << 10), (2, 512 << 10), (3, 8 << 20)]


def test_machine_has_a_name_where_the_system_tells_nothing(no_sysfs: None) -> None:
    assert re.fullmatch(r".+, \d+ cores?", processor.machine_name.__wrapped__())


@pytest.mark.parametrize(
    ("flags", "guest"),
    [("fpu hypervisor avx", True), ("fpu hypervisor_x avx", False), (None, None)],
)
def test_a_guest_has_a_bit_for_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, flags: str | None, guest: bool | None
) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("model name\t: a hypervisor\n" + (f"flags\t\t: {flags}\n" if flags else ""))
    monkeypatch.setattr(processor, "_CPUINFO", info)
    monkeypatch.setattr(processor.platform, "system", lambda: "Linux")
    monkeypatch.setattr(processor.platform, "machine", lambda: "x86_64")
    assert processor.is_guest.__wrapped__() is guest


def test_other_systems_say_nothing_of_a_host(
    no_sysfs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for system, machine in (("Windows", "AMD64"), ("Linux", "aarch64"), ("Linux", "x86_64")):
        monkeypatch.setattr(processor.platform, "system", lambda system=system: system)
        monkeypatch.setattr(processor.platform, "machine", lambda machine=machine: machine)
        assert processor.is_guest.__wrapped__() is None
    # A libc without sysctlbyname, as here, or one that does not know the name.
    assert processor._darwin_says("kern.no_such_name") is None


def test_machine_name_is_the_processor_brand(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("vendor_id\t: X\nmodel name\t: Fast   CPU 3000\nmodel name\t: other\n")
    monkeypatch.setattr(processor, "_CPUINFO", info)
    monkeypatch.setattr(processor, "core_count", lambda: 1)
    assert processor.machine_name.__wrapped__() == "Fast CPU 3000, 1 core"


@pytest.mark.parametrize(
    ("system", "name"), [("AMD64", "x86_64"), ("arm64", "aarch64"), ("riscv64", "riscv64")]
)
def test_one_spelling_of_the_architecture(
    monkeypatch: pytest.MonkeyPatch, system: str, name: str
) -> None:
    monkeypatch.setattr(processor.platform, "machine", lambda: system)
    assert processor.architecture() == name


def test_llvm_describes_this_processor() -> None:
    assert processor.cpu_name()
    assert re.fullmatch(r"llvmlite \d+\.\d+\.\d+, LLVM \d+\.\d+\.\d+", processor.llvm_version())
    names = {field[1:] for field in processor.cpu_feature_string().split(",") if field[:1] == "+"}
    assert names == processor.cpu_features()
    assert processor.core_count() >= 1
