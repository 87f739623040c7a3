"""LLVM IR text to machine code in this process, through llvmlite.

The contract with code generation. The module defines, once per grid of the kernel ::

    define i32 @<entry>(ptr %args, i64 %begin, i64 %end, ptr %flag, ptr %scratch)

which executes the grid's blocks with linear ids `begin` <= id < `end`:

- `%args` points to 8-byte slots, one per kernel argument in order: a tensor's data pointer; an
  integer or bool sign-extended (unsigned: the low bits); a float as the bits of its own dtype,
  zero-extended. Then come the run-time symbols (dynamic extents and strides) as i64, in the order
  given to the `ArgumentBinder`.
- `%flag` points to an i32 that becomes nonzero when the user interrupts. The code loads it
  (monotonic) before every block and returns 1 once it is set.
- `%scratch` is aligned to 64 bytes, `scratch_bytes` long, private to the worker for the call, and
  not zeroed.
- the result is 0 when all blocks are done, 1 when interrupted, 2 + n when device assertion number n
  failed.

The text may call what the C library of the process exports (libm included), and the conversions
between floating types that LLVM leaves to a support library; those are in `support_ir`. It must not
truncate to `bfloat`: with the feature avx512bf16 LLVM takes an instruction for that which flushes
denormals to zero. LLVM kills
the process, by design, when it meets an intrinsic that the target's features lack ("Cannot
select"): code generation must ask `NativeTarget.has` first.
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any

from tileworkbench.compiler.device.host import processor
from tileworkbench.compiler.device.host.support_ir import SUPPORT_IR
from tileworkbench.compiler.diagnostics import TileError, UnsupportedError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.runtime.forks import fresh_lock

# Part of every cached object's key: increase it when the same text comes to mean different code.
COMPILER_VERSION = 3

LEVELS = ("native", "avx512", "avx2", "generic")

# The x86-64 psABI micro-architecture levels 3 and 4, https://gitlab.com/x86-psABIs/x86-64-ABI.
_X86_BASE = ("cx8", "fxsr", "mmx", "sse", "sse2")
_X86_V3 = (
    *("avx", "avx2", "bmi", "bmi2", "cx16", "f16c", "fma", "lzcnt", "movbe", "popcnt", "sahf"),
    *("sse3", "sse4.1", "sse4.2", "ssse3", "xsave"),
)
_X86_V4 = (*_X86_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")
_X86_LEVELS: dict[str, tuple[str, tuple[str, ...]]] = {
    "avx512": ("x86-64-v4", _X86_V4),
    "avx2": ("x86-64-v3", _X86_V3),
    "generic": ("x86-64", ()),
}

# The first has a conversion to bfloat16 that flushes denormals to zero; without it LLVM rounds
# exactly. With the second LLVM computes float16 in float16 and joins products and sums, which loses
# the rounding between them; without it each is float32, and rounded.
_INEXACT_FEATURES = ("avxneconvert", "avx512fp16")

# A pass by its name in LLVM's `opt`, and the llvmlite method that adds it.
_PASSES = {
    "adce": "add_aggressive_dce_pass",
    "dce": "add_dead_code_elimination_pass",
    "dse": "add_dead_store_elimination_pass",
    "instcombine": "add_instruction_combine_pass",
    "loop-rotate": "add_loop_rotate_pass",
    "loop-simplify": "add_loop_simplify_pass",
    "loop-unroll": "add_loop_unroll_pass",
    "newgvn": "add_new_gvn_pass",
    "sccp": "add_sccp_pass",
    "simplifycfg": "add_simplify_cfg_pass",
    "sink": "add_sinking_pass",
    "sroa": "add_sroa_pass",
}
_PIPELINES = {"default<O1>": 1, "default<O2>": 2, "default<O3>": 3}

# JITLink places code anywhere and knows every relocation of ELF and Mach-O; COFF still needs
# RuntimeDyld.
_USES_JITLINK = sys.platform != "win32"

# Loops are written out or several times over (`benchmarks/unrolled_loops.py`); tiles that only such
# loops had walked are in registers then.
DEFAULT_PASSES: tuple[str, ...] = ("sroa", "instcombine", "simplifycfg", "loop-unroll", "sroa")


class NativeError(TileError):
    """LLVM rejected text that this package generated: a bug in the compiler, not in the kernel."""


@dataclass(frozen=True, slots=True)
class NativeTarget:
    """A processor to generate code for: a `level` of this machine, or all of it (``native``)."""

    level: str
    triple: str
    cpu: str
    feature_string: str
    features: frozenset[str]

    def has(self, *names: str) -> bool:
        """Whether code for this target may use every one of the named features (LLVM's names)."""
        return self.features.issuperset(names)

    @property
    def vector_bytes(self) -> int:
        """Width in bytes of the widest vector registers: 64, 32 or 16."""
        if self.has("avx512f", "avx512bw", "avx512vl", "avx512dq"):
            return 64
        return 32 if self.has("avx2", "fma") else 16


@functools.cache
def native_target(level: str = "native") -> NativeTarget:
    """The target of one of `LEVELS` on this machine.

    Raises `UnsupportedError` for an unknown level, for an x86 level on another architecture, and
    for a level that needs features this processor lacks, naming them.
    """
    if level not in LEVELS:
        names = ", ".join(f"'{name}'" for name in LEVELS)
        raise UnsupportedError(f"'{level}' is not a CPU feature level", hint=f"one of {names}")
    triple = str(processor.llvm_binding().get_process_triple())
    if level == "native":
        return _host_target(triple)
    if processor.architecture() != "x86_64":
        if level == "generic":
            return NativeTarget(level, triple, "generic", "", frozenset())
        raise UnsupportedError(
            f"CPU feature level '{level}' is for x86-64 only, not {processor.architecture()}",
            hint="use 'native' or 'generic'",
        )
    cpu, needed = _X86_LEVELS[level]
    missing = [name for name in needed if name not in processor.cpu_features()]
    if missing:
        names = ", ".join(f"'{name}'" for name in missing)
        raise UnsupportedError(
            f"CPU feature level '{level}' needs features that this processor lacks: {names}",
            hint="use 'native' for all that it has",
        )
    return NativeTarget(level, triple, cpu, "", frozenset((*_X86_BASE, *needed)))


def _host_target(triple: str) -> NativeTarget:
    present = processor.cpu_features()
    tiles = [name for name in present if name.startswith("amx-")]
    removed = [name for name in _INEXACT_FEATURES if name in present]
    removed += tiles if tiles and not processor.request_tiles() else []
    feature_string = ",".join((processor.cpu_feature_string(), *(f"-{name}" for name in removed)))
    cpu, features = processor.cpu_name(), feature_string.strip(",")
    return NativeTarget("native", triple, cpu, features, present.difference(removed))


@dataclass(frozen=True, slots=True)
class NativeFunction:
    """Machine code in this process; it stays mapped as long as this object lives."""

    entry: str
    address: int
    _library: Any = field(repr=False)


def compile_object(
    ir_text: str,
    target: NativeTarget | None = None,
    passes: tuple[str, ...] = DEFAULT_PASSES,
    codegen_level: int = 2,
) -> bytes:
    """An object file for `target` (default: all of this machine) from LLVM IR text.

    `passes` are names as LLVM's `opt` spells them (`PASS_NAMES`), or one whole pipeline such as
    ``default<O2>``. `codegen_level` 0 selects instructions four times as fast and four times as
    badly. Raises `NativeError` when LLVM does not accept the text, `UnsupportedError` for an
    unknown pass.
    """
    target = target or native_target()
    with _optimized_module(ir_text, target, passes, codegen_level) as (machine, module):
        return bytes(machine.emit_object(module))


def compile_assembly(
    ir_text: str, target: NativeTarget | None = None, passes: tuple[str, ...] = DEFAULT_PASSES
) -> str:
    """The assembly of what `compile_object` makes, for reading."""
    with _optimized_module(ir_text, target or native_target(), passes, 2) as (machine, module):
        return str(machine.emit_assembly(module))


def optimized_text(
    ir_text: str, target: NativeTarget | None = None, passes: tuple[str, ...] = DEFAULT_PASSES
) -> str:
    """The LLVM IR that `compile_object` selects instructions for."""
    with _optimized_module(ir_text, target or native_target(), passes, 2) as (_, module):
        return str(module)


PASS_NAMES: tuple[str, ...] = (*_PASSES, *_PIPELINES)


@contextmanager
def _optimized_module(
    ir_text: str, target: NativeTarget, passes: tuple[str, ...], codegen_level: int
) -> Iterator[tuple[Any, Any]]:
    """A target machine and the verified module after `passes`, for the duration of a with block."""
    binding = processor.llvm_binding()
    machine = _target_machine(target, codegen_level)
    # A context of its own: types of one module never pile up in the global one. Both are closed
    # here, in this order, since LLVM crashes when a garbage collection disposes of a context before
    # its modules.
    with binding.create_context() as context:
        try:
            module = binding.parse_assembly(ir_text, context)
        except RuntimeError as error:
            raise _rejected(error) from None
        with module:
            try:
                module.verify()
            except RuntimeError as error:
                raise _rejected(error) from None
            _run_passes(binding, machine, module, passes)
            yield machine, module


def _rejected(error: RuntimeError) -> NativeError:
    reason = " ".join(str(error).split())
    return NativeError(
        f"LLVM rejected the generated code: {reason}", hint="this is a bug in tileworkbench"
    )


def _target_machine(target: NativeTarget, codegen_level: int) -> Any:
    """A new target machine. Position independent code can be linked anywhere; the small code model
    has constants and calls in reach, for which JITLink makes room and stubs, RuntimeDyld does not.
    """
    binding = processor.llvm_binding()
    return binding.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu,
        features=target.feature_string,
        opt=codegen_level,
        reloc="pic",
        codemodel="small" if _USES_JITLINK else "jitdefault",
        jit=True,
    )


def _run_passes(binding: Any, machine: Any, module: Any, passes: tuple[str, ...]) -> None:
    if not passes:
        return
    for name in passes:
        if name not in PASS_NAMES:
            raise UnsupportedError(
                f"'{name}' is not an LLVM pass that this version runs",
                hint="one of " + ", ".join(PASS_NAMES),
            )
    for pipeline, group in itertools.groupby(passes, key=_PIPELINES.get):
        options = binding.create_pipeline_tuning_options(speed_level=pipeline or 0)
        builder = binding.create_pass_builder(machine, options)
        if pipeline is not None:
            builder.getModulePassManager().run(module, builder)
            continue
        manager = binding.create_new_module_pass_manager()
        for name in group:
            getattr(manager, _PASSES[name])()
        manager.run(module, builder)


_link_lock = fresh_lock()
_library_numbers = itertools.count()


@functools.cache
def _linker() -> Any:
    """The process's one LLJIT, alive until the process ends."""
    return processor.llvm_binding().create_lljit_compiler(use_jit_link=_USES_JITLINK)


@functools.cache
def support_object() -> bytes:
    return compile_object(SUPPORT_IR, native_target("generic"), (), 0)


def load_object(
    object_bytes: bytes,
    entries: Sequence[str],
    *,
    permanent: bool = False,
    imports: Mapping[str, int] | None = None,
) -> dict[str, NativeFunction]:
    """Link an object file into this process; its global symbols `entries` by name. `imports` are
    the addresses of functions that it calls.

    A `permanent` library outlives the returned objects: for code that other threads may be inside.
    Raises `NativeError` for an object that does not link.
    """
    binding = processor.llvm_binding()
    builder = binding.JITLibraryBuilder()
    builder.add_object_img(object_bytes).add_current_process()
    if b"__trunc" in object_bytes or b"__extend" in object_bytes:
        builder.add_object_img(support_object())
    for name in entries:
        builder.export_symbol(name)
    for name, address in (imports or {}).items():
        builder.import_symbol(name, address)
    with _link_lock:
        library = f"tileworkbench.{next(_library_numbers)}"
        try:
            tracker = builder.link(_linker(), library)
        except RuntimeError as error:
            names = ", ".join(f"'{name}'" for name in entries)
            raise NativeError(
                f"LLVM could not link {names}: {' '.join(str(error).split())}",
                hint="this is a bug in tileworkbench",
            ) from error
    if permanent:
        tracker.detach()
    return {name: NativeFunction(name, int(tracker[name]), tracker) for name in entries}
