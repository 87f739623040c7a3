"""Facts and wishes that change no result, and checks that the kernel makes while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tileworkbench.compiler.diagnostics import TileTypeError, TileValueError
from tileworkbench.compiler.frontend.builder import current, in_kernel
from tileworkbench.compiler.frontend.tensors import TensorValue
from tileworkbench.compiler.frontend.values import (
    Operators,
    condition,
    describe,
    fitting,
    to_value,
)
from tileworkbench.compiler.ir.simt import Fence, GridDependency, SetRegisters
from tileworkbench.compiler.ir.stmt import Assume, DeviceAssert
from tileworkbench.compiler.machine.nvidia import REGISTER_SHARES


def use_swizzle(panel_size: int, order: str = "row", enable: bool = True) -> None:
    """Visit the blocks of the grid in panels of `panel_size` rows ("row") or columns ("column"): a
    hint for caches.

    Raises `TileValueError` for another order or a size that is not positive.

    >>> T.use_swizzle(8)
    """
    builder = in_kernel("T.use_swizzle")
    if isinstance(panel_size, bool) or not isinstance(panel_size, int):
        raise TileTypeError(
            f"'panel_size' of T.use_swizzle must be an integer, not {describe(panel_size)}"
        )
    if panel_size <= 0:
        raise TileValueError(f"'panel_size' of T.use_swizzle must be positive, not {panel_size}")
    if order not in ("row", "column", "mlx"):
        raise TileValueError(
            f"'{order}' is not an order of T.use_swizzle", hint="use 'row' or 'column'"
        )
    if enable:
        # "mlx" names another panel order of Metal; a permutation of unordered blocks changes no
        # result.
        builder.swizzle = (panel_size, "row" if order == "mlx" else order)


def annotate_safe_value(values: Mapping[Any, Any]) -> None:
    """What reads outside a global tensor give, for each tensor of `values`, instead of zero.

    Raises `TileTypeError` for a key that is no tensor and `TileValueError` for one that is not in
    global memory.

    >>> T.annotate_safe_value({A: 1.0})
    """
    builder = current("T.annotate_safe_value")
    for tensor, value in _entries("T.annotate_safe_value", values):
        _require_global("T.annotate_safe_value", tensor)
        builder.safe_values[tensor.name] = fitting(value, tensor.buffer.dtype)[0]


def annotate_l2_hit_ratio(ratios: Mapping[Any, float]) -> None:
    """The share of each global tensor that should stay in the L2 cache, from 0 to 1: a hint.

    >>> T.annotate_l2_hit_ratio({A: 0.5})
    """
    current("T.annotate_l2_hit_ratio")
    for tensor, ratio in _entries("T.annotate_l2_hit_ratio", ratios):
        _require_global("T.annotate_l2_hit_ratio", tensor)
        if not isinstance(ratio, int | float) or not 0 <= ratio <= 1:
            raise TileValueError(
                f"the ratio of '{tensor.name}' in T.annotate_l2_hit_ratio must be from 0 to 1, "
                f"not {ratio}"
            )


def _entries(construct: str, table: Mapping[Any, Any]) -> list[tuple[TensorValue, Any]]:
    if not isinstance(table, Mapping):
        raise TileTypeError(
            f"{construct} takes a dictionary from tensors to values, not {describe(table)}"
        )
    for key in table:
        if not isinstance(key, TensorValue):
            raise TileTypeError(f"a key of {construct} must be a tensor, not {describe(key)}")
    return list(table.items())


def _require_global(construct: str, tensor: TensorValue) -> None:
    if tensor.buffer.scope != "global":
        raise TileValueError(
            f"{construct} is for tensors in global memory, and '{tensor.name}' is "
            f"{tensor.buffer.scope}"
        )


def annotate_min_blocks_per_sm(count: int) -> None:
    """How many blocks should fit on one multiprocessor: a hint.

    Raises `TileValueError` unless positive.

    >>> T.annotate_min_blocks_per_sm(2)
    """
    current("T.annotate_min_blocks_per_sm")
    if isinstance(count, bool) or not isinstance(count, int) or count <= 0:
        raise TileValueError(f"T.annotate_min_blocks_per_sm needs a positive integer, not {count}")


def annotate_restrict_buffers(*tensors: Any) -> None:
    """A promise that the tensors do not overlap, which every call is checked for anyway.

    >>> T.annotate_restrict_buffers(A, C)
    """
    current("T.annotate_restrict_buffers")
    for tensor in tensors:
        if not isinstance(tensor, TensorValue):
            raise TileTypeError(
                f"T.annotate_restrict_buffers takes tensors, not {describe(tensor)}"
            )


def annotate_pass_configs(options: Mapping[str, Any] | None = None, **named: Any) -> None:
    """Options for compiler passes, by name. They change no result, and passes here take none.

    Raises `TileTypeError` for anything but a dictionary.

    >>> T.annotate_pass_configs()
    """
    current("T.annotate_pass_configs")
    if options is not None and not isinstance(options, Mapping):
        raise TileTypeError(
            f"T.annotate_pass_configs takes a dictionary of options, not {describe(options)}"
        )


def annotate_compile_flags(flags: Any) -> None:
    """Flags for a target's compiler, as text or a list of texts; targets without one ignore them.

    Raises `TileTypeError` for anything else.

    >>> T.annotate_compile_flags("--use_fast_math")
    """
    current("T.annotate_compile_flags")
    texts = [flags] if isinstance(flags, str) else flags
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise TileTypeError(
            f"T.annotate_compile_flags takes text or a list of texts, not {describe(flags)}"
        )


def annotate_ws_schedule(*roles: Any, **options: Any) -> None:
    """How warp-specialised code is scheduled: a hint without effect.

    >>> T.annotate_ws_schedule()
    """
    current("T.annotate_ws_schedule")


def ws_op(*operands: Any, **options: Any) -> None:
    """An operator of a schedule of warp-specialised code: a hint without effect.

    >>> T.ws_op()
    """
    current("T.ws_op")


def evaluate(value: Any) -> None:
    """A statement that computes `value` and drops it: no effect, since expressions have none.

    >>> T.evaluate(A[0, 0])
    """
    in_kernel("T.evaluate")
    if isinstance(value, Operators):
        to_value(value)


def disable_warp_group_reg_alloc() -> None:
    """Keep registers evenly divided between warp groups: a hint for Hopper.

    >>> T.disable_warp_group_reg_alloc()
    """
    in_kernel("T.disable_warp_group_reg_alloc")


def set_max_nreg(count: int, is_increase: int = 1) -> None:
    """From here on each thread of the role has `count` registers: more than it began with, or with
    `is_increase` 0 fewer, which the other roles of the block may take. All threads of a warpgroup
    reach this together. On a CPU it has no effect, nor has it outside roles (`T.ws`), where nobody
    could take them.

    Raises `TileValueError` unless `count` is a multiple of 8 from 24 to 256, and `UnsupportedError`
    when compiled for a GPU that cannot move registers: all but `sm_90a`.

    >>> T.set_max_nreg(240, 1)
    """
    _move("T.set_max_nreg", count, bool(is_increase))


def _move(construct: str, count: int, increase: bool) -> None:
    _registers(construct, count)
    shares = REGISTER_SHARES
    if not shares.takes(count):
        wanted = f"a multiple of {shares.unit} from {shares.least} to {shares.most}"
        raise TileValueError(f"{construct} takes {wanted}, not {count}")
    builder = current(construct)
    builder.uses.append((construct, builder.site))
    builder.emit(SetRegisters(count, increase))


def _registers(construct: str, count: int) -> None:
    in_kernel(construct)
    if isinstance(count, bool) or not isinstance(count, int) or count <= 0:
        raise TileValueError(f"{construct} needs a positive integer, not {count}")


def inc_max_nreg(count: int) -> None:
    """`T.set_max_nreg(count, 1)`.

    >>> T.inc_max_nreg(240)
    """
    _move("T.inc_max_nreg", count, True)


def dec_max_nreg(count: int) -> None:
    """`T.set_max_nreg(count, 0)`.

    >>> T.dec_max_nreg(24)
    """
    _move("T.dec_max_nreg", count, False)


def no_set_max_nreg() -> None:
    """The compiler shall not move registers between warp groups: a hint for Hopper.

    >>> T.no_set_max_nreg()
    """
    in_kernel("T.no_set_max_nreg")


def annotate_producer_reg_dealloc(count: int = 24) -> None:
    """Registers that a copying warp group keeps: a hint for Hopper.

    >>> T.annotate_producer_reg_dealloc(24)
    """
    _registers("T.annotate_producer_reg_dealloc", count)


def annotate_consumer_reg_alloc(count: int = 240) -> None:
    """Registers that a computing warp group gets: a hint for Hopper.

    >>> T.annotate_consumer_reg_alloc(240)
    """
    _registers("T.annotate_consumer_reg_alloc", count)


def pdl_sync() -> None:
    """Wait until the launch in front of this one in the stream has ended, and its memory can be
    seen (programmatic dependent launch). From Hopper on a kernel with this statement is launched
    before that: what stands above it must not need what that launch writes. Elsewhere launches
    follow one another, and it has no effect.

    >>> T.pdl_sync()
    """
    in_kernel("T.pdl_sync").emit(GridDependency(True))


def pdl_trigger() -> None:
    """Let the next launch of the stream begin, from Hopper on, once all blocks have come here or
    ended. What it needs of this one it waits for with `T.pdl_sync`.

    >>> T.pdl_trigger()
    """
    in_kernel("T.pdl_trigger").emit(GridDependency(False))


def fence_proxy_async() -> None:
    """Let the copy engine and tensor cores see what this thread knows to be written to shared
    memory. The simulator misses one where it is asked to (`kernel.simulate(fences=True)`).

    >>> T.fence_proxy_async()
    """
    in_kernel("T.fence_proxy_async").emit(Fence("async"))


def assume(cond: Any) -> None:
    """A condition that the compiler may rely on.

    Raises `TileValueError` when it is known to be false.

    >>> T.assume(N[i] < 1000)
    """
    builder = current("T.assume")
    if isinstance(cond, Operators):
        made = condition(cond, "the condition of T.assume").expr
        builder.emit(Assume(made))
    elif not cond:
        raise TileValueError("the condition of T.assume is false")


def device_assert(cond: Any, msg: str = "") -> None:
    """Stop the kernel with `msg` where `cond` does not hold.

    Raises `TileValueError` when it is known to be false.

    >>> T.device_assert(i < 64, "i is an index")
    """
    builder = in_kernel("T.device_assert")
    if isinstance(cond, Operators):
        builder.emit(
            DeviceAssert(condition(cond, "the condition of T.device_assert").expr, str(msg))
        )
    elif not cond:
        raise TileValueError(
            f"the condition of T.device_assert is false{': ' + msg if msg else ''}"
        )
