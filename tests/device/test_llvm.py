from __future__ import annotations

import ctypes
import gc

import ml_dtypes
import numpy
import pytest

from tests.device.kernels import EMPTY, SAXPY, launcher, load
from tileworkbench.compiler.device.host import llvm, processor
from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.runtime.scalars import scalar_encoder

X86_64 = processor.architecture() == "x86_64"


def usable_levels() -> list[str]:
    levels = []
    for level in llvm.LEVELS:
        try:
            llvm.native_target(level)
        except UnsupportedError:
            continue
        levels.append(level)
    return levels


def call(native: llvm.NativeFunction, *slots: int) -> int:
    """Run `native` as block 0 of 1 with `slots`."""
    arguments = (ctypes.c_int64 * max(1, len(slots)))(*slots)
    flag = ctypes.c_int32(0)
    types = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)
    function = ctypes.CFUNCTYPE(ctypes.c_int32, *types)(native.address)
    return int(function(ctypes.addressof(arguments), 0, 1, ctypes.addressof(flag), None))


def test_native_and_generic_levels_exist_everywhere() -> None:
    assert {"native", "generic"} <= set(usable_levels())


@pytest.mark.parametrize("level", usable_levels())
def test_every_usable_level_computes_saxpy(level: str) -> None:
    x, y = numpy.arange(4, dtype=numpy.float32), numpy.ones(4, numpy.float32)
    native = load(SAXPY.ir_text, target=llvm.native_target(level))
    assert call(native, x.ctypes.data, y.ctypes.data, scalar_encoder("", "float32")(2.5)) == 0
    assert y.tolist() == [1.0, 3.5, 6.0, 8.5]


@pytest.mark.skipif(not X86_64, reason="x86-64 levels")
def test_level_limits_the_instructions_used() -> None:
    text = """
define void @add(ptr %a) {
  %x = load <16 x float>, ptr %a, align 64
  %y = fadd <16 x float> %x, %x
  store <16 x float> %y, ptr %a, align 64
  ret void
}
"""
    registers = {"generic": ("xmm", 16), "avx2": ("ymm", 32), "avx512": ("zmm", 64)}
    for level in set(usable_levels()) - {"native"}:
        target = llvm.native_target(level)
        used = llvm.compile_assembly(text, target)
        found = [name for name, _ in registers.values() if name in used]
        assert (found, target.vector_bytes) == ([registers[level][0]], registers[level][1])


def test_inexact_features_are_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    features = frozenset({"avx512fp16", "avxneconvert", "avx2", "fma"})
    text = "+avx2,+avx512fp16,+avxneconvert,+fma"
    monkeypatch.setattr(processor, "cpu_features", lambda: features)
    monkeypatch.setattr(processor, "cpu_feature_string", lambda: text)
    target = llvm.native_target.__wrapped__("native")
    assert target.features == {"avx2", "fma"}
    assert target.feature_string == f"{text},-avxneconvert,-avx512fp16"
    assert (target.has("avx2", "fma"), target.has("avx2", "avxneconvert")) == (True, False)


def test_unknown_level() -> None:
    with pytest.raises(UnsupportedError) as raised:
        llvm.native_target("avx9")
    assert str(raised.value) == (
        "'avx9' is not a CPU feature level\nhint: one of 'native', 'avx512', 'avx2', 'generic'"
    )


@pytest.mark.skipif(not X86_64, reason="x86-64 levels")
def test_level_above_the_processor_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    have = processor.cpu_features() - {"avx512f", "avx512bw"} | {"avx512cd", "avx512dq", "avx512vl"}
    monkeypatch.setattr(processor, "cpu_features", lambda: have | set(llvm._X86_V3))
    with pytest.raises(UnsupportedError) as raised:
        llvm.native_target.__wrapped__("avx512")
    assert str(raised.value) == (
        "CPU feature level 'avx512' needs features that this processor lacks: "
        "'avx512bw', 'avx512f'\n"
        "hint: use 'native' for all that it has"
    )


def test_x86_level_on_another_architecture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "architecture", lambda: "aarch64")
    with pytest.raises(UnsupportedError) as raised:
        llvm.native_target.__wrapped__("avx2")
    assert str(raised.value) == (
        "CPU feature level 'avx2' is for x86-64 only, not aarch64\nhint: use 'native' or 'generic'"
    )
    assert llvm.native_target.__wrapped__("generic").cpu == "generic"


def test_text_that_does_not_parse_is_our_bug() -> None:
    with pytest.raises(llvm.NativeError) as raised:
        llvm.compile_object("define i32 @kernel() { ret i33 0 }")
    reason = raised.value.message.partition(": ")[2]
    assert "value doesn't match function result type 'i32'" in reason
    assert raised.value.render() == (
        f"NativeError: LLVM rejected the generated code: {reason}\n"
        "hint: this is a bug in tileworkbench"
    )


def test_unresolved_symbol_is_our_bug(capfd: pytest.CaptureFixture[str]) -> None:
    text = """
declare void @no_such_function()
define i32 @kernel() {
  call void @no_such_function()
  ret i32 0
}
"""
    with pytest.raises(llvm.NativeError) as raised:
        load(text)
    reason = raised.value.message.partition(": ")[2]
    assert raised.value.render() == (
        f"NativeError: LLVM could not link 'kernel': {reason}\n"
        "hint: this is a bug in tileworkbench"
    )
    assert "no_such_function" in capfd.readouterr().err


def test_unknown_pass() -> None:
    with pytest.raises(UnsupportedError) as raised:
        llvm.compile_object(EMPTY.ir_text, passes=("licm",))
    names = ", ".join(llvm.PASS_NAMES)
    assert "instcombine" in names
    assert raised.value.render() == (
        "UnsupportedError: 'licm' is not an LLVM pass that this version runs\n"
        f"hint: one of {names}"
    )


@pytest.mark.parametrize(
    "passes", [(), *[(name,) for name in llvm.PASS_NAMES], ("sroa", "default<O1>", "adce")]
)
def test_every_pass_runs(passes: tuple[str, ...]) -> None:
    data = llvm.compile_object(SAXPY.ir_text, passes=passes)
    assert llvm.load_object(data, ["kernel"])["kernel"].address


def test_passes_change_the_code() -> None:
    wasteful = """
define i32 @kernel(i32 %x) {
  %a = mul i32 %x, 8
  %b = sdiv i32 %a, 1
  %unused = udiv i32 1234567, %x
  ret i32 %b
}
"""
    assert "div" in llvm.compile_assembly(wasteful.replace("ret i32 %b", "ret i32 %unused"))
    assert len(llvm.compile_object(wasteful, passes=("instcombine",))) <= len(
        llvm.compile_object(wasteful, passes=())
    )


def test_same_text_gives_the_same_object() -> None:
    assert llvm.compile_object(SAXPY.ir_text) == llvm.compile_object(SAXPY.ir_text)


def test_libm_resolves_from_the_process() -> None:
    text = """
declare double @cbrt(double)
define i32 @kernel(ptr %args, i64 %b, i64 %e, ptr %f, ptr %s) {
  %at = load ptr, ptr %args
  %x = load double, ptr %at
  %y = call double @cbrt(double %x)
  store double %y, ptr %at
  ret i32 0
}
"""
    value = ctypes.c_double(27.0)
    native = load(text)
    assert call(native, ctypes.addressof(value)) == 0
    assert value.value == pytest.approx(3.0)


def test_one_object_may_have_several_entries() -> None:
    text = SAXPY.ir_text + EMPTY.ir_text.replace("@kernel", "@second")
    data = llvm.compile_object(text)
    entries = llvm.load_object(data, ["second", "kernel"])
    assert [entry.entry for entry in entries.values()] == ["second", "kernel"]
    assert call(entries["second"]) == 0
    assert entries["second"].address != entries["kernel"].address


def test_code_lives_as_long_as_the_launcher() -> None:
    run = launcher(EMPTY)
    for _ in range(20):
        other = launcher(SAXPY, 3)
        del other
    gc.collect()
    run((0,), 1)


# --- conversions that LLVM leaves to a support library

NUMPY_TYPES = {
    "half": numpy.dtype(numpy.float16),
    "bfloat": numpy.dtype(ml_dtypes.bfloat16),
    "float": numpy.dtype(numpy.float32),
    "double": numpy.dtype(numpy.float64),
}


def conversion(source: str, target: str) -> str:
    widens = NUMPY_TYPES[target].itemsize > NUMPY_TYPES[source].itemsize
    return f"""
define i32 @kernel(ptr %args, i64 %b, i64 %e, ptr %f, ptr %s) {{
entry:
  %to_at = getelementptr i64, ptr %args, i64 1
  %count_at = getelementptr i64, ptr %args, i64 2
  %from = load ptr, ptr %args
  %to = load ptr, ptr %to_at
  %count = load i64, ptr %count_at
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %x_at = getelementptr {source}, ptr %from, i64 %i
  %y_at = getelementptr {target}, ptr %to, i64 %i
  %x = load {source}, ptr %x_at
  %y = {"fpext" if widens else "fptrunc"} {source} %x to {target}
  store {target} %y, ptr %y_at
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %loop, label %done
done:
  ret i32 0
}}
"""


def hard_values(source: numpy.dtype, target: numpy.dtype) -> numpy.ndarray:
    """All of a 16-bit type; for a wider one every 16-bit target value, the midpoints and their
    neighbours."""
    if source.itemsize == 2:
        return numpy.arange(1 << 16, dtype=numpy.uint16).view(source)
    with numpy.errstate(invalid="ignore"):  # signalling NaN
        grid = numpy.arange(1 << 16, dtype=numpy.uint16).view(target).astype(source)
    positive = numpy.sort(grid[numpy.isfinite(grid) & (grid >= 0)])
    middle = positive[:-1] + (positive[1:] - positive[:-1]) / source.type(2)
    near = [numpy.nextafter(middle, source.type(edge)) for edge in (0, numpy.inf)]
    largest = numpy.finfo(source).max
    rare = numpy.array([0.0, numpy.inf, numpy.nan, largest, numpy.finfo(source).tiny], source)
    values = numpy.concatenate([positive, middle, *near, rare])
    return numpy.concatenate([values, -values])


def nearest(values: numpy.ndarray, target: numpy.dtype) -> numpy.ndarray:
    """`values` rounded to nearest even, found by search among all values of the 16-bit type
    `target`."""
    codes = numpy.arange(0x7C01 if target == numpy.float16 else 0x7F81, dtype=numpy.uint16)
    grid = codes.view(target).astype(numpy.float64)
    step = grid[-2] - grid[-3]
    grid[-1] = grid[-2] + step  # where infinity takes over
    magnitude = numpy.abs(values.astype(numpy.float64))
    above = numpy.clip(numpy.searchsorted(grid, magnitude), 1, len(grid) - 1)
    low, high = grid[above - 1], grid[above]
    up = (high - magnitude < magnitude - low) | (
        (high - magnitude == magnitude - low) & (codes[above] % 2 == 0)
    )
    code = codes[numpy.where(up | (magnitude > grid[-1]), above, above - 1)]
    sign = numpy.signbit(values).astype(numpy.uint16) << 15
    return (code | sign).view(target)


@pytest.mark.parametrize("level", usable_levels())
@pytest.mark.parametrize(
    ("source", "target"),
    [
        *[("half", "float"), ("half", "double"), ("bfloat", "float"), ("float", "half")],
        *[("double", "half"), ("float", "bfloat"), ("double", "bfloat")],
    ],
)
def test_conversions_round_once_and_keep_denormals(level: str, source: str, target: str) -> None:
    if target == "bfloat" and llvm.native_target(level).has("avx512bf16"):
        pytest.skip("the instruction for it flushes denormals: generated code rounds by itself")
    from_type, to_type = NUMPY_TYPES[source], NUMPY_TYPES[target]
    values = hard_values(from_type, to_type)
    result = numpy.zeros(len(values), to_type)
    text = conversion(source, target)
    native = load(text, target=llvm.native_target(level))
    assert call(native, values.ctypes.data, result.ctypes.data, len(values)) == 0
    if to_type.itemsize == 2:
        expected = nearest(values, to_type)
    else:
        expected = values.astype(to_type)
    bits = numpy.dtype(f"u{to_type.itemsize}")
    with numpy.errstate(invalid="ignore"):  # signalling NaN
        is_nan = numpy.isnan(values)
    assert (numpy.isnan(result) == is_nan).all()
    wrong = (result.view(bits) != expected.view(bits)) & ~is_nan
    assert not wrong.any(), (values[wrong][:5], result[wrong][:5], expected[wrong][:5])
