"""Names of TVM and of TileLang's compiler that have no counterpart here.

Scripts import many of them and use few, or none. Each resolves to a class that says at its use what
to write instead: `ABSENT` is the table.
"""

from __future__ import annotations

from typing import Any, NoReturn

from tileworkbench.compiler.diagnostics import UnsupportedError

_PASSES = "kernel.program is the program, kernel.passes shows how it is lowered"
_CODE = "kernel.source, kernel.asm and kernel.sass are the generated code"
_GEMM = "T.gemm chooses the matrix instructions and their layouts; T.Layout makes others"
_CONFIGS = "list the configurations: tilelang.autotune(configs=[...])"
_CALLS = "call the kernel itself; kernel.source is its code"
_DEVICES = "name the target as text, such as 'cuda -arch=sm_90'"
_LANGUAGE = "write it with the names of tilelang.language"
_CACHE = "TILEWORKBENCH_DISABLE_CACHE=1 turns the cache on disk off"
_ERRORS = "every error is a tileworkbench.TileError"
_DIFF = "kernel.passes.diff(name) is what a pass changed"

# (what to write instead, a parent, what it has that is absent here); "" is the parent itself.
_GROUPS = (
    (_PASSES, "tilelang", "_ffi_api analysis autodd engine instrumentation ir transform"),
    (_GEMM, "tilelang", "cuda intrinsics metal primitives rocm tileop"),
    (_DEVICES, "tilelang", "ascend backend cpu webgpu"),
    (_CODE, "tilelang", "contrib register_c_postproc register_cuda_postproc register_hip_postproc"),
    (_CODE, "tilelang.engine", "callback"),
    (_CONFIGS, "tilelang", "carver"),
    (_CONFIGS, "tilelang.autotuner", "capture grouped_compile param tuner"),
    (_CACHE, "tilelang", "cache env"),
    (_ERRORS, "tilelang", "errors"),
    (_CALLS, "tilelang", "libinfo"),
    (_CALLS, "tilelang.jit", "abi adapter diagnostics env kernel param"),
    ("kernel.show() has views of layouts, passes and code", "tilelang", "tools"),
    ("pack and unpack weights with torch or numpy", "tilelang", "quantize"),
    (
        *(_LANGUAGE, "tilelang.language"),
        "allocate annotations ast atomic builtin common copy_op customize dtypes eager experimental"
        " fill_op frame gemm gemm_op kernel logical loop math_intrinsics meta overrides parser"
        " print print_op proxy reduce reduce_op scan_op symbolics tile_schedule tir utils v2"
        " warp_specialize warpgroup",
    ),
    (
        *(_GEMM, "tilelang.layout"),
        "SwizzleMode ascend cute fragment gemm_sp make_cutlass_metadata_layout"
        " make_fully_replicated_layout_fragment make_gemm_fragment_8x8"
        " make_gemm_fragment_8x8_transposed make_linear_layout partial_fragment swizzle"
        " swizzle_mode",
    ),
    (_LANGUAGE, "tilelang.utils", "language"),
    (_DIFF, "tilelang.utils", "pass_diff pass_diff_hook"),
    ("compress a 2:4 sparse operand with torch", "tilelang.utils", "sparse"),
    (_PASSES, "tvm", ""),
    (_LANGUAGE, "tvm", "ir script te tir tirx"),
    (_DEVICES, "tvm", "target"),
    (_ERRORS, "tvm", "error"),
    (_CALLS, "tvm_ffi", ""),
)
# A dotted name -> what to write instead. It covers everything below it; the longest one counts.
ABSENT: dict[str, str] = {
    f"{parent}.{name}".rstrip("."): instead
    for instead, parent, names in _GROUPS
    for name in names.split(" ")
}


def remedy(name: str) -> str | None:
    """What to write instead of a dotted name that is absent on purpose; None for any other."""
    while name not in ABSENT:
        name, _, last = name.rpartition(".")
        if not last:
            return None
    return ABSENT[name]


class Absent(type):
    """The type of such names: classes without instances, so that annotations, `isinstance`,
    base classes and attributes work. Calling one, or going through it, raises `UnsupportedError`.
    """

    path: str

    def __getattr__(cls, name: str) -> Absent:
        if name.startswith("_"):  # what Python and its tools ask of any object
            raise AttributeError(name)
        return absent(f"{cls.path}.{name}")

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and isinstance(args[0], Absent) and not kwargs:
            return args[0]  # a decorator of a class that cannot be used either
        cls._fail()

    def __iter__(cls) -> NoReturn:
        cls._fail()

    def __getitem__(cls, index: Any) -> NoReturn:
        cls._fail()

    def _fail(cls) -> NoReturn:
        raise UnsupportedError(
            f"'{cls.path}' belongs to TVM or TileLang's compiler: tileworkbench is built on "
            f"neither",
            hint=remedy(cls.path),
        )


def absent(path: str) -> Absent:
    """The class that stands for a dotted name."""
    return Absent(path.rpartition(".")[2], (), {"path": path, "__module__": path.split(".")[0]})
