"""GPU kernels shipped: what the copy asks the driver for is what the package asks it for.

No GPU is needed: both talk to a library that records what it is asked.
"""

from __future__ import annotations

import ctypes
import hashlib
import zlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.capability import require
from tileworkbench import kernels
from tileworkbench.compiler.device.amd import driver as hip_driver
from tileworkbench.compiler.device.amd import kernel as amd
from tileworkbench.compiler.device.amd.clang import missing_compiler
from tileworkbench.compiler.device.gpu import GpuKernel
from tileworkbench.compiler.device.nvidia import driver as cuda_driver
from tileworkbench.compiler.device.nvidia import kernel as nvidia
from tileworkbench.compiler.device.nvidia.nvrtc import missing_nvrtc
from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.runtime.arguments import BoundArguments
from tileworkbench.shipping.gpu import _bytes
from tileworkbench.shipping.shipped.loader import Call as ShippedCall

M, N, K = T.dynamic("M"), T.dynamic("N"), T.dynamic("K")
ADDRESSES = (0x7000_0000, 0x7100_0000, 0x7200_0000, 0x7300_0000)


class Recorder:
    """A driver that does nothing, and notes every call with what its arguments say."""

    def __init__(self, arch: tuple[int, int] = (9, 0)) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.arch = arch

    def __getattr__(self, name: str) -> Any:
        if not name.startswith(("cu", "hip")):
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            self.calls.append((name, *map(shown, arguments)))
            getattr(self, f"do_{name}", lambda *rest: None)(*arguments)
            return 0

        return call

    def do_cuDeviceGetCount(self, out: Any) -> None:
        out._obj.value = 1

    do_hipGetDeviceCount = do_cuDeviceGetCount

    def do_cuDeviceGetAttribute(self, out: Any, number: int, device: Any) -> None:
        facts = {75: self.arch[0], 76: self.arch[1], 97: 232448, 16: 132}
        out._obj.value = facts.get(number, 32)

    def do_cuModuleGetFunction(self, out: Any, module: Any, name: bytes) -> None:
        out._obj.value = zlib.crc32(name)

    do_hipModuleGetFunction = do_cuModuleGetFunction

    def do_cuMemAllocAsync(self, out: Any, size: Any, stream: Any) -> None:
        out._obj.value = 0x9000 + len(self.calls)

    def do_cuOccupancyMaxActiveBlocksPerMultiprocessor(self, out: Any, *rest: Any) -> None:
        out._obj.value = 8

    def do_cuTensorMapEncodeTiled(self, place: Any, *rest: Any) -> None:
        text = repr([shown(each) for each in rest]).encode()
        ctypes.memmove(place.value, hashlib.sha512(text).digest() * 2, 128)

    def do_cuLaunchKernel(self, function: Any, *rest: Any) -> None:
        self.calls.append(("values", *values_of(rest[-2])))

    def do_cuLaunchKernelEx(self, config: Any, function: Any, values: Any, extra: Any) -> None:
        given = config._obj
        attributes = [given.attributes[place] for place in range(given.attribute_count)]
        self.calls.append((*given.grid, *given.block, given.shared_bytes))
        self.calls.append(tuple((each.id, *each.value[:3]) for each in attributes))
        self.calls.append(("values", *values_of(values)))

    def do_hipModuleLaunchKernel(self, function: Any, *rest: Any) -> None:
        self.calls.append(("values", *values_of(rest[-2])))


def values_of(pointers: Any) -> list[int]:
    """The first eight bytes that each argument of a launch points to."""
    return [ctypes.cast(each, ctypes.POINTER(ctypes.c_uint64))[0] for each in pointers]


def shown(argument: Any) -> Any:
    """An argument as a value that two calls may agree in; places of the host's memory are not."""
    if isinstance(argument, bytes):
        return hashlib.sha256(argument).hexdigest()
    if isinstance(argument, ctypes.Array):
        is_text = argument._type_ is ctypes.c_char
        return "array" if is_text or argument._type_ is ctypes.c_void_p else tuple(argument)
    if isinstance(argument, ctypes.c_void_p):
        value = argument.value
        return "place" if value is not None and value > 0x7FFF_FFFF_FFF else value
    if isinstance(argument, ctypes._SimpleCData):
        return argument.value
    if isinstance(argument, int | float | str | type(None)):
        return argument
    return "reference"


def package_calls(
    kernel: Any, slots: list[int], numbers: dict[str, int], library: Recorder
) -> list[Any]:
    """What the package asks the driver for."""
    compiled = kernel.compiled
    assert isinstance(compiled, GpuKernel)
    symbols = tuple(slots[len(compiled.signature.binder.parameters) :])
    bound = BoundArguments(slots, symbols, (), (), "cuda:0")
    fitting = (each for each in compiled.variants if each.signature.fits(bound, numbers))
    taken = next(fitting, compiled)
    taken._loaded = None
    taken._run((), bound, numbers)
    return library.calls


def slots_of(kernel: Any, **sizes: int) -> tuple[list[int], dict[str, int]]:
    """Addresses for the tensors, and the symbols in order."""
    compiled = kernel.compiled
    count = len(compiled.signature.binder.parameters)
    symbols = compiled.signature.binder.symbols
    numbers = {name: sizes[name] for name in symbols}
    return [*ADDRESSES[:count], *numbers.values()], numbers


def compare(
    program: Any,
    target: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    import_folder: Callable[[Path], Any],
    *calls: dict[str, int],
) -> tuple[list[Any], Any]:
    """Ship a kernel for an NVIDIA GPU; both make the same calls, which are returned."""
    require("nvrtc", missing_nvrtc())
    arch = (9, 0) if "90" in target else (8, 0)
    with monkeypatch.context() as patched:
        ours = Recorder(arch)
        device = cuda_driver.CudaDevice.open(cuda_driver.open_driver(ours))
        patched.setattr(nvidia, "open_device", lambda ordinal=0: device)
        patched.setattr(tw.Kernel, "__call__", None)
        kernel = tw.compile(program, target=target)
        expected = []
        for sizes in calls:
            ours.calls.clear()
            expected.append(list(package_calls(kernel, *slots_of(kernel, **sizes), ours)))
    kernel.ship(folder)
    module = import_folder(folder)
    shipped = getattr(module, kernel.name)
    loader = __import__(f"{module.__name__}.cuda", fromlist=["open_device"])
    driver = __import__(f"{module.__name__}.cuda_driver", fromlist=["CudaDevice"])
    theirs = Recorder(arch)
    opened = driver.CudaDevice.open(driver.open_driver(theirs))
    monkeypatch.setattr(loader, "open_device", lambda ordinal=0: opened)
    for sizes, wanted in zip(calls, expected, strict=True):
        theirs.calls.clear()
        slots, numbers = slots_of(kernel, **sizes)
        shipped.launcher._loaded.clear()
        shipped.launcher._encoders.clear()
        shipped.launcher.launch(ShippedCall(slots, numbers, "cuda:0"))
        assert theirs.calls == wanted
    return expected, shipped


def names(calls: list[Any]) -> list[Any]:
    return [each[0] for each in calls]


def test_a_dynamic_matmul_takes_the_variant_that_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, import_folder: Callable[[Path], Any]
) -> None:
    program = kernels.matmul(M, N, K, "float16")
    sizes = [{"M": 256, "N": 256, "K": 512}, {"M": 255, "N": 253, "K": 511}]
    calls, shipped = compare(
        program, "cuda:sm_80", tmp_path / "mm", monkeypatch, import_folder, *sizes
    )
    assert names(calls[0])[-4:] == [
        "cuCtxPushCurrent_v2",
        "cuLaunchKernel",
        "values",
        "cuCtxPopCurrent_v2",
    ]
    images = [next(each[2] for each in some if each[0] == "cuModuleLoadData") for some in calls]
    assert images[0] != images[1]
    assert {path.name for path in (tmp_path / "mm").glob("*.cubin")} == {
        "matmul.cubin",
        "matmul_0.cubin",
    }
    assert "__global__" in (tmp_path / "mm" / "matmul.cu").read_text()
    assert repr(shipped) == "<kernel matmul(A, B) for cuda:sm_80>"


def test_tensor_maps_are_encoded_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, import_folder: Callable[[Path], Any]
) -> None:
    program = kernels.matmul(512, 512, 512, "float16", num_stages=3)
    calls, _ = compare(program, "cuda:sm_90a", tmp_path / "mm", monkeypatch, import_folder, {})
    encoded = [each for each in calls[0] if each[0] == "cuTensorMapEncodeTiled"]
    assert len(encoded) >= 2


def test_blocks_that_wait_for_each_other_are_launched_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, import_folder: Callable[[Path], Any]
) -> None:
    @T.prim_func
    def reversed_later(A: T.Tensor((1024,), "float32"), B: T.Tensor((1024,), "float32")):
        with T.Kernel(8, threads=128) as b:
            space = T.alloc_global((1024,), "float32")
            for i in T.Parallel(128):
                space[b * 128 + i] = A[b * 128 + i]
            T.sync_grid()
            for i in T.Parallel(128):
                B[b * 128 + i] = space[1023 - b * 128 - i]

    calls, _ = compare(
        reversed_later, "cuda:sm_80", tmp_path / "grid", monkeypatch, import_folder, {}
    )
    assert "cuMemAllocAsync" in names(calls[0])
    assert "cuMemsetD8Async" in names(calls[0])
    assert "cuLaunchKernelEx" in names(calls[0])


def test_the_wrong_gpu_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, import_folder: Callable[[Path], Any]
) -> None:
    require("nvrtc", missing_nvrtc())
    kernel = tw.compile(kernels.matmul(64, 64, 64, "float16"), target="cuda:sm_80")
    kernel.ship(tmp_path / "mm")
    module = import_folder(tmp_path / "mm")
    loader = __import__(f"{module.__name__}.cuda", fromlist=["open_device"])
    errors = __import__(f"{module.__name__}.errors", fromlist=["DeviceUnavailableError"])
    device = SimpleNamespace(name="Fake", arch="sm_90", ordinal=0)
    monkeypatch.setattr(loader, "open_device", lambda ordinal=0: device)
    with pytest.raises(errors.DeviceUnavailableError) as caught:
        module.matmul.launcher.launch(ShippedCall([1, 2, 3], {}, "cuda:0"))
    assert str(caught.value) == (
        "the kernel is for 'sm_80', and 'Fake' is a 'sm_90'\nhint: ship it for target 'cuda:sm_90'"
    )
    check = module.matmul.launcher._check
    for arch in ("sm_80", "sm_86", "sm_89"):
        check(SimpleNamespace(name="Fake", arch=arch))
    with pytest.raises(errors.DeviceUnavailableError):
        check(SimpleNamespace(name="Fake", arch="sm_75"))


def test_tensors_must_be_on_the_gpu(tmp_path: Path, import_folder: Callable[[Path], Any]) -> None:
    import torch

    require("nvrtc", missing_nvrtc())
    tw.compile(kernels.matmul(64, 64, 64, "float16"), target="cuda:sm_80").ship(tmp_path / "mm")
    shipped = import_folder(tmp_path / "mm").matmul
    a = torch.zeros(64, 64, dtype=torch.float16)
    with pytest.raises(ValueError) as caught:
        shipped(a, a)
    assert str(caught.value) == "'matmul': 'A' is on device 'cpu', expected 'cuda'"


def test_a_copy_imports_nothing_of_the_package(tmp_path: Path) -> None:
    require("nvrtc", missing_nvrtc())
    tw.compile(kernels.matmul(64, 64, 64, "float16"), target="cuda:sm_90a").ship(tmp_path / "mm")
    files = {path.name for path in (tmp_path / "mm").glob("*.py")}
    assert files >= {"cuda.py", "cuda_driver.py", "cuda_maps.py", "cuda_launch.py", "launch.py"}
    for path in (tmp_path / "mm").glob("*.py"):
        imports = [line for line in path.read_text().splitlines() if "import " in line]
        assert not [line for line in imports if line.startswith(("from tilew", "import tilew"))]


@pytest.mark.hip
def test_a_code_object_is_launched_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, import_folder: Callable[[Path], Any]
) -> None:
    require("hip", missing_compiler())
    kernel = tw.compile(kernels.matmul(256, 256, 256, "float16"), target="hip:gfx942")
    kernel.ship(tmp_path / "mm")
    assert (tmp_path / "mm" / "matmul.hsaco").read_bytes()[:4] == b"\x7fELF"
    assert (tmp_path / "mm" / "matmul.hip").exists()
    module = import_folder(tmp_path / "mm")
    loader = __import__(f"{module.__name__}.hip", fromlist=["open_device"])
    beside = __import__(f"{module.__name__}.hip_driver", fromlist=["HipDriver"])
    logs = []
    slots, numbers = slots_of(kernel)
    for which in ("package", "copy"):
        library = Recorder()
        source = hip_driver if which == "package" else beside
        device = source.HipDevice(source.HipDriver(library), 0, "Fake", "gfx942", 304)
        if which == "package":
            monkeypatch.setattr(amd, "open_device", lambda ordinal=0, found=device: found)
            monkeypatch.setattr(amd, "find_hiprtc", lambda: None)
            package_calls(kernel, slots, numbers, library)
        else:
            monkeypatch.setattr(loader, "open_device", lambda ordinal=0, found=device: found)
            module.matmul.launcher.launch(ShippedCall(slots, numbers, "cuda:0"))
        logs.append(library.calls)
    assert logs[0] == logs[1]
    assert "hipModuleLaunchKernel" in names(logs[0])
    device = SimpleNamespace(name="Fake", arch="gfx90a", ordinal=0)
    monkeypatch.setattr(loader, "open_device", lambda ordinal=0: device)
    module.matmul.launcher._loaded.clear()
    with pytest.raises(RuntimeError) as caught:
        module.matmul.launcher.launch(ShippedCall(slots, numbers, "cuda:0"))
    assert str(caught.value) == (
        "the kernel is for 'gfx942', and 'Fake' is a 'gfx90a'\n"
        "hint: ship it for target 'hip:gfx90a'"
    )


def test_workspaces_with_strides() -> None:
    from tileworkbench.compiler.ir.build import int_const
    from tileworkbench.compiler.ir.expr import Buffer
    from tileworkbench.compiler.ir.types import FLOAT32

    strided = Buffer("space", FLOAT32, (int_const(4),), "global", (int_const(2),))
    with pytest.raises(UnsupportedError) as caught:
        _bytes(strided)
    assert str(caught.value) == "workspaces with strides are not shipped ('space')"
