from __future__ import annotations

import dataclasses
import os
import stat
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

from tests.device.kernels import COUNT, EMPTY, Code
from tests.device.test_threads import run_script
from tileworkbench.compiler.device.host import cache as cache_module
from tileworkbench.compiler.device.host import llvm, processor
from tileworkbench.compiler.device.host.cache import DiskCache, default_cache, object_key
from tileworkbench.compiler.device.host.native import NativeBuild, build_native

KEY, OTHER = "ab" * 32, "cd" * 32
posix = pytest.mark.skipif(os.name != "posix", reason="owners and modes of POSIX")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture(autouse=True)
def warn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "_warned", set())


def entry(folder: Path) -> Path:
    [path] = folder.iterdir()
    return path


def build(code: Code, cache: DiskCache | None = None) -> NativeBuild:
    return build_native(code.ir_text, [code.entry], cache=cache)


# --- entries


def test_what_was_put_is_found_by_another_process_object(folder: Path) -> None:
    cache = DiskCache(folder)
    assert cache.get(KEY) is None
    assert cache.put(KEY, b"machine code")
    assert DiskCache(folder).get(KEY) == cache.get(KEY) == b"machine code"
    assert cache.get(OTHER) is None
    assert dataclasses.astuple(cache.counters) == (1, 2, 1, 0)


def test_second_build_comes_from_disk(folder: Path) -> None:
    first, second = (build(COUNT, cache=DiskCache(folder)) for _ in range(2))
    assert (first.from_cache, second.from_cache) == (False, True)
    assert first.functions["kernel"].address != second.functions["kernel"].address


def test_disk_cache_works_across_processes(folder: Path) -> None:
    script = f"""
        from tests.device.kernels import COUNT
        from tileworkbench.compiler.device.host.cache import DiskCache
        from tileworkbench.compiler.device.host.native import build_native
        print(build_native(COUNT.ir_text, ["kernel"], cache=DiskCache({str(folder)!r})).from_cache)
    """
    assert [run_script(script).strip() for _ in range(2)] == ["False", "True"]


def damaged(content: bytes) -> dict[str, bytes]:
    flipped = bytearray(content)
    flipped[-1] ^= 1
    other_key = bytearray(content)
    other_key[8] ^= 1
    return {
        "empty": b"",
        "half a header": content[:20],
        "header only": content[:80],
        "truncated": content[:-1],
        "longer": content + b"x",
        "flipped bit": bytes(flipped),
        "other format": b"tilewb\x00\x02" + content[8:],
        "entry of another key": bytes(other_key),
        "foreign": b"\x7fELF" + bytes(200),
    }


@pytest.mark.parametrize("damage", damaged(bytes(100)))
def test_damaged_entry_is_removed_and_built_anew(folder: Path, damage: str) -> None:
    build(EMPTY, cache=DiskCache(folder))
    path = entry(folder)
    good = path.read_bytes()
    path.write_bytes(damaged(good)[damage])
    cache = DiskCache(folder)
    key = path.name.removesuffix(".object")
    assert cache.get(key) is None
    assert dataclasses.astuple(cache.counters) == (0, 1, 0, 1)
    assert not path.exists()
    assert not build(EMPTY, cache=cache).from_cache
    assert path.read_bytes() == good
    assert build(EMPTY, cache=cache).from_cache


@posix
def test_entry_that_others_may_write_is_not_run(folder: Path) -> None:
    cache = DiskCache(folder)
    cache.put(KEY, b"code")
    entry(folder).chmod(0o666)
    assert cache.get(KEY) is None
    assert cache.counters.errors == 1


@posix
def test_a_pipe_in_place_of_an_entry_is_removed(folder: Path) -> None:
    build(COUNT, cache=DiskCache(folder))
    path = entry(folder)
    path.unlink()
    os.mkfifo(path, 0o600)
    script = f"""
from tileworkbench.compiler.device.host.cache import DiskCache
print(DiskCache({str(folder)!r}).get({path.stem!r}))
"""
    assert run_script(script) == "None\n"
    assert not path.exists()


def test_every_field_of_the_key_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    target = llvm.native_target()
    keys = [
        object_key("text", target, ("sroa",)),
        object_key("text ", target, ("sroa",)),
        object_key("text", target, ("sroa", "sroa")),
        object_key("text", target, ()),
        object_key("text", dataclasses.replace(target, cpu="other"), ("sroa",)),
        object_key("text", dataclasses.replace(target, feature_string="+x"), ("sroa",)),
        object_key("text", dataclasses.replace(target, triple="other"), ("sroa",)),
    ]
    monkeypatch.setattr(processor, "llvm_version", lambda: "LLVM 99")
    keys.append(object_key("text", target, ("sroa",)))
    monkeypatch.setattr(cache_module, "COMPILER_VERSION", -1)
    keys.append(object_key("text", target, ("sroa",)))
    assert len(set(keys)) == len(keys)
    assert object_key("text", target, ("sroa",)) == keys[-1]


# --- directories


@posix
def test_new_directory_is_private(folder: Path) -> None:
    old = os.umask(0)
    try:
        DiskCache(folder).put(KEY, b"code")
    finally:
        os.umask(old)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(entry(folder).stat().st_mode) & 0o077 == 0


@posix
@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777])
def test_directory_that_others_may_write_is_not_used(folder: Path, mode: int) -> None:
    DiskCache(folder).put(KEY, b"code")
    folder.chmod(mode)
    cache = DiskCache(folder)
    with pytest.warns(RuntimeWarning) as caught:
        assert cache.get(KEY) is None
        assert not cache.put(OTHER, b"code")
        assert DiskCache(folder).clear() == 0
    assert [str(warning.message) for warning in caught] == [
        f"the cache directory '{folder}' is not used: "
        "it belongs to somebody else, or others may write to it"
    ]
    assert len(list(folder.iterdir())) == 1


@posix
def test_directory_of_another_user_is_not_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    DiskCache(folder).put(KEY, b"code")
    real = os.stat

    def stat_of_another(path: object, **options: object) -> os.stat_result:
        fields = list(real(path, **options))  # type: ignore[arg-type]
        fields[stat.ST_UID] += 1
        return os.stat_result(fields)

    monkeypatch.setattr(cache_module.os, "stat", stat_of_another)
    with pytest.warns(RuntimeWarning, match="belongs to somebody else"):
        assert DiskCache(folder).get(KEY) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not build(EMPTY, cache=DiskCache(folder)).from_cache


@posix
@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere"
)
def test_read_only_directory_is_read(folder: Path) -> None:
    DiskCache(folder).put(KEY, b"code")
    folder.chmod(0o500)
    try:
        check_read_only(folder)
    finally:
        folder.chmod(0o700)


def test_directory_that_refuses_writes_is_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    DiskCache(folder).put(KEY, b"code")

    def refuse(*args: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(cache_module.tempfile, "mkstemp", refuse)
    monkeypatch.setattr(cache_module.os, "utime", refuse)
    check_read_only(folder)


def check_read_only(folder: Path) -> None:
    cache = DiskCache(folder)
    assert cache.get(KEY) == b"code"
    assert not cache.put(OTHER, b"code")
    assert dataclasses.astuple(cache.counters) == (1, 0, 0, 1)
    assert not build(EMPTY, cache=cache).from_cache
    assert len(list(folder.iterdir())) == 1


def test_full_disk_leaves_nothing_behind(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = DiskCache(folder)

    def fail(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache_module.os, "replace", fail)
    assert not cache.put(KEY, b"code")
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("place", ["file", "below a file"])
def test_directory_that_cannot_be(tmp_path: Path, place: str) -> None:
    file = tmp_path / "file"
    file.write_text("")
    cache = DiskCache(file if place == "file" else file / "cache")
    assert not cache.put(KEY, b"code")
    assert cache.get(KEY) is None
    assert cache.clear() == 0


def test_clear_removes_our_files_only(folder: Path) -> None:
    cache = DiskCache(folder)
    cache.put(KEY, b"code")
    cache.put(OTHER, b"code")
    (folder / "notes.txt").write_text("mine")
    assert cache.clear() == 2
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
    assert cache.get(KEY) is None


def test_least_recently_used_entries_make_room(folder: Path) -> None:
    cache = DiskCache(folder, max_bytes=5 * 1080)
    keys = [f"{number:02x}" * 32 for number in range(8)]
    size = 1000
    past = time.time() - 1000
    for age, key in enumerate(keys[:5]):
        cache.put(key, bytes(size))
        os.utime(folder / f"{key}.object", (past + age, past + age))
    assert cache.get(keys[0]) is not None  # used just now: the oldest no longer
    cache.put(keys[5], bytes(size))
    present = {key for key in keys if (folder / f"{key}.object").exists()}
    assert present == {keys[0], keys[4], keys[5]}  # below three quarters again


def test_files_that_a_dead_process_left_are_removed(folder: Path) -> None:
    DiskCache(folder).put(KEY, b"code")
    old, new = folder / "old.writing", folder / "new.writing"
    for path in (old, new):
        path.write_text("")
    os.utime(old, (1, 1))
    DiskCache(folder).put(OTHER, b"code")
    assert (old.exists(), new.exists()) == (False, True)


# --- the environment


def test_environment_names_the_directory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWORKBENCH_CACHE_DIR", str(folder))
    assert default_cache().directory == folder
    assert default_cache() is default_cache()
    monkeypatch.setenv("TILEWORKBENCH_CACHE_DIR", str(folder / "other"))
    assert default_cache().directory == folder / "other"


def test_environment_turns_the_cache_off(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWORKBENCH_CACHE_DIR", str(folder))
    monkeypatch.setenv("TILEWORKBENCH_DISABLE_CACHE", "1")
    assert [build(EMPTY).from_cache for _ in range(2)] == [False, False]
    assert not folder.exists()
    assert default_cache().clear() == 0
    monkeypatch.setenv("TILEWORKBENCH_DISABLE_CACHE", "0")
    assert [build(EMPTY).from_cache for _ in range(2)] == [False, True]


def test_default_directory_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TILEWORKBENCH_CACHE_DIR", raising=False)
    assert "tileworkbench" in default_cache().directory.name


def test_user_without_a_home_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory")

    monkeypatch.setattr(cache_module, "_default_directory", homeless)
    cache = cache_module._cache_for.__wrapped__(False, None)
    assert not cache.put(KEY, b"code")


# --- several processes

WRITER = """
import sys
from pathlib import Path
from tileworkbench.compiler.device.host.cache import DiskCache
cache = DiskCache(sys.argv[1], max_bytes=40_000)
keys = [f"{number:02x}" * 32 for number in range(6)]
for turn in range(120):
    key = keys[turn % len(keys)]
    data = cache.get(key)
    if data is not None and data != bytes.fromhex(key) * 200:
        sys.exit("wrong entry")
    if data is None or turn % 3 == 0:
        cache.put(key, bytes.fromhex(key) * 200)
    if turn % 50 == 49:
        cache.clear()
print(cache.counters.errors)
"""


def test_processes_that_write_at_once_never_see_half_an_entry(folder: Path) -> None:
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(folder)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    results = [writer.communicate(timeout=60)[0] for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    assert results == ["0\n"] * 3
    assert not list(folder.glob("*.writing"))
