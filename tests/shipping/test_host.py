"""CPU kernels shipped, and run where the package cannot be imported."""

from __future__ import annotations

import ctypes
import json
import math
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench import kernels
from tileworkbench.compiler.device.host.kernel import CpuKernel
from tileworkbench.compiler.diagnostics import TileValueError, UnsupportedError
from tileworkbench.shipping import host
from tileworkbench.shipping.cpuid import features_text

HAS_LINKER = any(map(shutil.which, ("cc", "gcc", "clang"))) or find_spec("ziglang") is not None
pytestmark = pytest.mark.skipif(not HAS_LINKER, reason="this machine has no C compiler")
SITE = str(Path(np.__file__).parents[1])

# Runs in an interpreter that sees numpy and torch, and nothing of this package.
CHILD = """
import sys
sys.path[:0] = [{parent!r}]
sys.path.append({site!r})
import importlib
try:
    import tileworkbench.api
except ImportError:
    pass
else:
    raise SystemExit("the package is there")
import pickle
kernel = getattr(importlib.import_module({folder!r}), {name!r})
calls = pickle.load(open({inputs!r}, "rb"))
results = [kernel(*args) for args in calls]
assert "tileworkbench" not in sys.modules or sys.modules["tileworkbench"].__file__ is None
pickle.dump(([args for args in calls], results), open({outputs!r}, "wb"))
"""


def run_alone(folder: Path, name: str, calls: list[tuple[Any, ...]]) -> tuple[Any, Any]:
    """The arguments after the calls, and the results, of a kernel in a process of its own."""
    import pickle

    inputs, outputs = folder.parent / "inputs", folder.parent / "outputs"
    inputs.write_bytes(pickle.dumps(calls))
    code = CHILD.format(
        parent=str(folder.parent),
        site=SITE,
        folder=folder.name,
        name=name,
        inputs=str(inputs),
        outputs=str(outputs),
    )
    # No site: that would find an editable checkout of the package.
    command = [sys.executable, "-I", "-S", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded: tuple[Any, Any] = pickle.loads(outputs.read_bytes())
    return loaded


def random_arrays(*shapes: tuple[int, ...]) -> list[np.ndarray[Any, Any]]:
    generator = np.random.default_rng(5)
    return [generator.standard_normal(shape).astype(np.float32) for shape in shapes]


@T.prim_func
def scaled(
    A: T.Tensor((T.dynamic("m"), T.dynamic("n")), "float32"),
    counts: T.Tensor((4,), "int32"),
    factor: T.float32,
    small: T.bfloat16,
    shift: T.int8,
    is_negative: T.bool,
):
    m, n = A.shape
    B = T.empty((m, n), "float32")
    sums = T.empty((m,), "float32")
    with T.Kernel(T.ceildiv(m, 8), threads=32) as b:
        for i, j in T.Parallel(8, n):
            if b * 8 + i < m:
                value = A[b * 8 + i, j] * factor + T.cast(small, "float32")
                B[b * 8 + i, j] = T.if_then_else(is_negative, -value, value) + T.cast(
                    shift, "float32"
                )
        for i in T.Parallel(8):
            if b * 8 + i < m:
                sums[b * 8 + i] = A[b * 8 + i, 0] + A[b * 8 + i, n - 1]
        for i in T.Parallel(4):
            if b == 0:
                counts[i] = counts[i] + 1
    return B, sums


@T.prim_func
def guarded(A: T.Tensor((T.dynamic("n"),), "float32")):
    n = A.shape[0]
    T.assume(n % 4 == 0)
    B = T.empty((n // 4,), "float32")
    with T.Kernel(n // 4, threads=32) as b:
        T.device_assert(A[4 * b] > 0, "elements are positive")
        B[b] = A[4 * b] + 1
    return B


def ship(program: Any, folder: Path, target: str = "cpu") -> Any:
    kernel = tw.compile(program, target=target)
    kernel.ship(folder)
    return kernel


def test_a_matmul_runs_alone(tmp_path: Path) -> None:
    kernel = ship(kernels.matmul(96, 80, 64, "float32"), tmp_path / "mm")
    a, b = random_arrays((96, 64), (64, 80))
    _, (result,) = run_alone(tmp_path / "mm", "matmul", [(a, b)])
    assert np.array_equal(result, kernel(a, b))
    assert np.allclose(result, a @ b, atol=1e-4)


def test_attention_in_bfloat16_takes_torch_tensors(tmp_path: Path) -> None:
    program = kernels.flash_attention(1, 2, 96, 96, 64, "bfloat16", causal=True)
    kernel = ship(program, tmp_path / "attention")
    generator = torch.Generator().manual_seed(2)
    shape = tuple(int(str(extent)) for extent in kernel.program.params[0].value.shape)
    args = tuple(torch.randn(shape, generator=generator).bfloat16() for _ in range(3))
    _, (results,) = run_alone(tmp_path / "attention", kernel.name, [args])
    assert len(results) == 2
    assert all(torch.equal(*pair) for pair in zip(results, kernel(*args), strict=True))


def test_rows_of_every_number_are_one_library(tmp_path: Path) -> None:
    kernel = ship(kernels.rmsnorm(T.dynamic("m"), 48), tmp_path / "norm")
    calls = [tuple(random_arrays((rows, 48), (48,))) for rows in (1, 7, 64, 333)]
    _, results = run_alone(tmp_path / "norm", "rmsnorm", calls)
    for (x, weight), result in zip(calls, results, strict=True):
        assert np.array_equal(result, kernel(x, weight))
        scale = np.sqrt(np.square(x).mean(1, keepdims=True) + 1e-6)
        assert np.allclose(result, x / scale * weight, atol=1e-5)


def test_scalars_outputs_and_tensors_that_are_changed(tmp_path: Path) -> None:
    kernel = ship(scaled, tmp_path / "scaled")
    (a,) = random_arrays((37, 5))
    args = (a, np.arange(4, dtype=np.int32), 1.5, 0.1, -3, True)
    ((_, counts, *_),), (results,) = run_alone(tmp_path / "scaled", "scaled", [args])
    expected = kernel(a, here := np.arange(4, dtype=np.int32), 1.5, 0.1, -3, True)
    assert all(np.array_equal(*pair) for pair in zip(results, expected, strict=True))
    assert np.array_equal(counts, here) and not np.array_equal(counts, np.arange(4))


def test_what_a_kernel_prints_is_printed(
    tmp_path: Path, import_folder: Callable[[Path], Any], capfd: pytest.CaptureFixture[str]
) -> None:
    @T.prim_func
    def told(A: T.Tensor((3,), "float32")):
        with T.Kernel(1, threads=1):
            for i in T.serial(3):
                T.print(A[i], "element")

    ship(told, tmp_path / "told")
    import_folder(tmp_path / "told").told(np.array([1, 2, 3], np.float32))
    ctypes.CDLL(None).fflush(None)
    assert [line for line in capfd.readouterr().out.splitlines() if "element" in line] != []


def test_a_c_program_calls_it(tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("the program is for 'cc'")
    folder = tmp_path / "mm"
    ship(kernels.matmul(T.dynamic("M"), 32, 32, "float32"), folder)
    (tmp_path / "main.c").write_text(
        """
        #include <stdio.h>
        #include "mm/matmul.h"
        static float A[50 * 32], B[32 * 32], C[50 * 32];
        int main(void) {
            for (int i = 0; i < 50 * 32; i++) A[i] = i % 7;
            for (int i = 0; i < 32 * 32; i++) B[i] = i % 5;
            if (tile_matmul_lacks()) return 2;
            for (int threads = 0; threads < 4; threads++) {
                int code = tile_matmul(A, B, C, 50, threads);
                if (code) { puts(tile_matmul_message(code)); return 1; }
                for (int i = 0; i < 50; i++)
                    for (int j = 0; j < 32; j++) {
                        float sum = 0;
                        for (int k = 0; k < 32; k++) sum += A[i * 32 + k] * B[k * 32 + j];
                        if (sum != C[i * 32 + j]) { printf("%d %d\\n", i, j); return 1; }
                    }
            }
            puts(tile_matmul_message(tile_matmul(A, B, NULL, 50, 1)));
            puts(tile_matmul_message(tile_matmul(A, B, C, -1, 1)));
            puts(tile_matmul_message(tile_matmul((float *)((char *)A + 2), B, C, 50, 1)));
            puts(tile_matmul_message(tile_matmul(A, B, C, 0, 1)));
            return 0;
        }
        """
    )
    libraries = ["-Lmm", "-lmatmul", f"-Wl,-rpath,{folder}"]
    command = [compiler, "-Wall", "-Werror", "-o", "main", "main.c", *libraries]
    subprocess.run(command, check=True, cwd=tmp_path)
    done = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [
        "'matmul': 'C' is NULL",
        "'matmul': 'M' is negative, or more than 2146435071",
        "'matmul': 'A' begins at an address that is no multiple of 4",
        "'matmul': the grid is empty, or has more than 2147483647 blocks",
    ]
    assert done.returncode == 0


def test_a_folder_says_what_it_holds(tmp_path: Path) -> None:
    kernel = tw.compile(kernels.matmul(64, 64, 64, "float32"), target="cpu:avx2")
    shipment = kernel.ship(tmp_path / "mm")
    assert {name for name, _ in shipment.files} >= {"matmul.h", "matmul.c", "matmul.ll"}
    assert repr(shipment).splitlines()[0] == str(tmp_path / "mm")
    manifest = json.loads((tmp_path / "mm" / "manifest.json").read_text())
    assert manifest["target"] == str(kernel.target)  # "cpu" where this is all the machine has
    assert "avx2" in manifest["processor"]["features"]
    assert not any(name.startswith("avx512") for name in manifest["processor"]["features"])
    for path in (tmp_path / "mm").glob("*.py"):
        lines = path.read_text().splitlines()
        assert not [line for line in lines if "import" in line and "tileworkbench" in line]


def test_wrong_arguments_are_told_as_the_package_tells_them(
    tmp_path: Path, import_folder: Callable[[Path], Any]
) -> None:
    kernel = ship(scaled, tmp_path / "scaled")
    shipped = import_folder(tmp_path / "scaled").scaled
    (a,) = random_arrays((8, 6))
    counts = np.zeros(4, np.int32)
    frozen = counts.copy()
    frozen.flags.writeable = False
    good = (a, counts, 1.0, 1.0, 0, False)
    wrong: list[tuple[Any, ...]] = [
        good[:-1],
        (a.astype(np.float64), *good[1:]),
        (torch.zeros(8, 6, dtype=torch.int32), *good[1:]),
        (a[0], *good[1:]),
        (a.T, *good[1:]),
        (a, np.zeros(5, np.int32), *good[2:]),
        (a, frozen, *good[2:]),
        (*good[:2], "x", *good[3:]),
        (*good[:2], 1e39, *good[3:]),
        (*good[:4], 200, False),
        (*good[:4], 1.5, False),
        (*good[:4], 0, 2),
        ([1.0], *good[1:]),
        (a[:0], *good[1:]),
    ]
    for args in wrong:
        with pytest.raises(tw.ArgumentError) as expected:
            kernel(*args)
        with pytest.raises(ValueError) as caught:
            shipped(*args)
        told, said = str(expected.value), str(caught.value)
        # The hint about strides names a declaration, which a shipped kernel has no more.
        told = told.replace(", or declare the parameter as T.StridedTensor", "")
        told = told.replace(", a numpy array, or anything with DLPack", " or a numpy array")
        assert said == told
    assert len(shipped(*good)) == 2


def test_gradients_are_not_lost_without_a_word(
    tmp_path: Path, import_folder: Callable[[Path], Any]
) -> None:
    ship(kernels.matmul(32, 32, 32, "float32"), tmp_path / "mm")
    matmul = import_folder(tmp_path / "mm").matmul
    a, b = torch.ones(32, 32, requires_grad=True), torch.ones(32, 32)
    with pytest.warns(UserWarning) as told:
        assert not matmul(a, b).requires_grad
    assert str(told[0].message) == (
        "'matmul': 'A' requires grad, and autograd does not see into a kernel: its results are "
        "detached (call it under torch.no_grad())"
    )
    assert told[0].filename == __file__
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        matmul(a, b)

    @T.prim_func
    def doubled(A: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(32):
                A[i] = A[i] * 2

    ship(doubled, tmp_path / "doubled")
    with pytest.raises(ValueError) as caught:
        import_folder(tmp_path / "doubled").doubled(torch.ones(32, requires_grad=True))
    assert str(caught.value) == (
        "'doubled': 'A' requires grad, and the kernel writes to it\n"
        "hint: call it under torch.no_grad(), or pass a detached tensor"
    )


def test_sizes_and_assumptions_are_checked(
    tmp_path: Path, import_folder: Callable[[Path], Any]
) -> None:
    kernel = ship(guarded, tmp_path / "guarded")
    shipped = import_folder(tmp_path / "guarded").guarded
    ones = np.ones(10, np.float32)
    with pytest.raises(tw.ArgumentError) as expected:
        kernel(ones)
    with pytest.raises(ValueError) as caught:
        shipped(ones)
    assert str(caught.value) == str(expected.value)
    with pytest.raises(RuntimeError) as failed:
        shipped(-np.ones(8, np.float32))
    assert str(failed.value) == "'guarded': device assertion failed: elements are positive"
    assert np.array_equal(shipped(np.ones(8, np.float32)), [2.0, 2.0])


def test_tensors_that_overlap_are_refused(
    tmp_path: Path, import_folder: Callable[[Path], Any]
) -> None:
    @T.prim_func
    def shifted(A: T.Tensor((16,), "float32"), B: T.Tensor((16,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(16):
                B[i] = A[15 - i]

    kernel = ship(shifted, tmp_path / "shifted")
    shipped = import_folder(tmp_path / "shifted").shifted
    memory = np.arange(24, dtype=np.float32)
    with pytest.raises(tw.ArgumentError) as expected:
        kernel(memory[:16], memory[8:])
    with pytest.raises(ValueError) as caught:
        shipped(memory[:16], memory[8:])
    told = str(expected.value).replace(", or compile with allow_alias=True", "")
    assert str(caught.value) == told
    odd = np.zeros(68, np.uint8)[1:65].view(np.float32)
    with pytest.raises(ValueError) as uneven:
        shipped(odd, memory[:16].copy())
    assert str(uneven.value) == "'shifted': 'A' begins at an address that is no multiple of 4"


def test_threads_give_the_same(tmp_path: Path, import_folder: Callable[[Path], Any]) -> None:
    kernel = ship(kernels.matmul(512, 512, 128, "float32"), tmp_path / "mm")
    shipped = import_folder(tmp_path / "mm").matmul
    a, b = random_arrays((512, 128), (128, 512))
    expected = kernel(a, b)
    for threads in (1, 2, 3, 2, 1, 5):
        shipped.launcher.threads = threads
        assert np.array_equal(shipped(a, b), expected)


def test_a_processor_that_lacks_a_feature_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, import_folder: Callable[[Path], Any]
) -> None:
    text = features_text(frozenset(["avx2"])).replace(
        '"avx2", 0x7u, 0, 1, 5', '"wings", 0x7u, 9, 1, 5'
    )
    if "wings" not in text:
        pytest.fail("the table of features has changed")
    monkeypatch.setattr(host, "features_text", lambda features: text)
    ship(kernels.matmul(64, 64, 64, "float32"), tmp_path / "mm")
    message = (
        "the library needs a processor with 'wings', and this one has none\n"
        "hint: ship the kernel for less: targets 'cpu:avx2' and 'cpu:generic'"
    )
    with pytest.raises(RuntimeError) as caught:
        import_folder(tmp_path / "mm")
    assert str(caught.value) == message


def test_amx_is_asked_for() -> None:
    text = features_text({"amx-tile", "amx-bf16", "avx512f"})
    assert "SYS_arch_prctl, 0x1023, 18" in text
    assert "0x600e6u" in text
    assert "lacking(void) { return NULL; }" in features_text({"neon"})


class TestRefused:
    """What cannot be shipped."""

    def refuses(self, folder: Path, program: Any, target: str = "cpu") -> str:
        kernel = tw.compile(program, target=target)
        with pytest.raises((UnsupportedError, TileValueError)) as caught:
            kernel.ship(folder)
        return f"{caught.value.message}\nhint: {caught.value.hint}"

    @pytest.mark.parametrize("target", ["sim:sm_80", "ptx:sm_90a", "sim:gfx942"])
    def test_simulated_targets(self, tmp_path: Path, target: str) -> None:
        assert self.refuses(tmp_path / "mm", kernels.matmul(64, 64, 64, "float32"), target) == (
            f"target '{target}' is no machine to ship a kernel to\n"
            "hint: compile it for 'cpu', 'cuda:<arch>' or 'hip:<arch>'"
        )
        assert not (tmp_path / "mm").exists()

    def test_folders_with_something_in_them(self, tmp_path: Path) -> None:
        (tmp_path / "notes.txt").write_text("mine")
        program = kernels.matmul(64, 64, 64, "float32")
        assert self.refuses(tmp_path, program) == (
            f"'{tmp_path}' has something in it\nhint: ship a kernel into a new or empty folder"
        )
        assert self.refuses(tmp_path / "notes.txt", program) == (
            f"'{tmp_path / 'notes.txt'}' has something in it\n"
            "hint: ship a kernel into a new or empty folder"
        )
        assert (tmp_path / "notes.txt").read_text() == "mine"

    def test_folders_that_cannot_be_written(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        said = self.refuses(tmp_path / "file" / "mm", kernels.matmul(64, 64, 64, "float32"))
        assert (
            said == f"'{tmp_path / 'file' / 'mm'}' cannot be written: Not a directory\nhint: None"
        )

    def test_names_that_python_cannot_import(self, tmp_path: Path) -> None:
        kernel = tw.compile(kernels.matmul(64, 64, 64, "float32"))
        compiled = replace(
            kernel.compiled, signature=replace(kernel.compiled.signature, name="my kernel")
        )
        from tileworkbench.shipping import ship

        with pytest.raises(UnsupportedError) as caught:
            ship(compiled, tmp_path / "mm")
        assert f"{caught.value.message}\nhint: {caught.value.hint}" == (
            "'my kernel' is no name that Python can import\nhint: give the kernel another name"
        )

    def test_functions_of_the_users_own(self, tmp_path: Path) -> None:
        @T.prim_func
        def foreign(A: T.Tensor((8,), "float32")):
            T.import_source("float twice(float x) { return 2 * x; }")
            with T.Kernel(1, threads=1):
                for i in T.serial(8):
                    A[i] = T.call_extern("float32", "twice", A[i])

        assert self.refuses(tmp_path / "f", foreign) == (
            "'twice' is a C function of the kernel's own (T.import_source), and those are not "
            "shipped\nhint: write it as a T.macro"
        )
        assert not any((tmp_path / "f").iterdir())

    def test_packed_elements(self, tmp_path: Path) -> None:
        @T.prim_func
        def packed(A: T.Tensor((8,), "int4"), B: T.Tensor((8,), "int8")):
            with T.Kernel(1, threads=8):
                for i in T.Parallel(8):
                    B[i] = T.cast(A[i], "int8")

        assert self.refuses(tmp_path / "p", packed) == (
            "'packed': a shipped kernel takes no tensor of 'int4' ('A')\n"
            "hint: declare it as the bytes or the number that it is stored as"
        )

    def test_other_systems_and_missing_compilers(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        program = kernels.matmul(64, 64, 64, "float32")
        with monkeypatch.context() as patched:
            patched.setattr(host, "is_posix", lambda: False)
            assert self.refuses(tmp_path / "a", program) == (
                "kernels for a processor are shipped on Linux and macOS alone\n"
                "hint: ship it there, or call it through this package"
            )
        with monkeypatch.context() as patched:
            patched.setattr(host.shutil, "which", lambda name: None)
            patched.setattr(host.importlib.util, "find_spec", lambda name: None)
            assert self.refuses(tmp_path / "b", program) == (
                "a shared library is linked by a C compiler, and this machine has none\n"
                "hint: install one of cc, gcc, clang, or 'pip install ziglang'"
            )
        false = shutil.which("false")
        assert false is not None
        monkeypatch.setattr(host, "_find_compiler", lambda: [false])
        assert self.refuses(tmp_path / "c", program) == (
            f"the C compiler '{false}' could not link the kernel: \n"
            "hint: this is a bug in tileworkbench, or the compiler is for another machine"
        )


@pytest.mark.slow
def test_ziglang_links_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ziglang")
    monkeypatch.setattr(host.shutil, "which", lambda name: None)
    kernel = ship(kernels.matmul(96, 80, 64, "float32"), tmp_path / "mm")
    a, b = random_arrays((96, 64), (64, 80))
    _, (result,) = run_alone(tmp_path / "mm", "matmul", [(a, b)])
    assert np.array_equal(result, kernel(a, b))


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        lambda: kernels.softmax(65, 33),
        lambda: kernels.layernorm(33, 48),
        lambda: kernels.matmul(96, 80, 64, "float16"),
        lambda: kernels.matmul(96, 80, 64, "bfloat16"),
    ],
)
def test_more_of_the_library(tmp_path: Path, make: Callable[[], Any]) -> None:
    kernel = ship(make(), tmp_path / "one")
    compiled = kernel.compiled
    assert isinstance(compiled, CpuKernel)
    generator = torch.Generator().manual_seed(1)
    args = []
    for spec in compiled.signature.binder.parameters:
        if not spec.is_output:
            shape = [dim.constant for dim in spec.dims]
            values = torch.randn(math.prod(shape), generator=generator).reshape(shape)
            args.append(values.to(getattr(torch, spec.dtype)))
    _, (result,) = run_alone(tmp_path / "one", kernel.name, [tuple(args)])
    assert torch.equal(result, kernel(*args))
