"""Arguments of a simulated call: symbols solved from shapes, and arrays brought into the form the
simulator works on.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tileworkbench.compiler.analysis.access import has_loads
from tileworkbench.compiler.analysis.evaluate import WIDER, WrappedSizeError, exact_size
from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.compiler.ir.build import const
from tileworkbench.compiler.ir.expr import Buffer, Expr, Var
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import buffers_of, statements, variables
from tileworkbench.compiler.ir.stmt import Kernel
from tileworkbench.compiler.ir.types import DType
from tileworkbench.compiler.sim.memory import memory_of
from tileworkbench.compiler.sim.values import Value, convert_array, python_value, storage_dtype

Array = np.ndarray[Any, Any]
_LARGE, _PART = 1 << 28, 1 << 20  # bytes


def solve_symbols(
    program: Program, arguments: Mapping[str, Any], given: Mapping[str, int] | None = None
) -> dict[str, int]:
    """The value of each symbol of `program`: those of `given`, the others from the arrays' shapes
    and strides.

    An extent that is linear in one unknown symbol determines it. Raises `ArgumentError` when a
    symbol stays unknown, when an extent has no integer solution, or when an array does not have the
    shape that the symbols give.
    """
    known = {**_integers(program, arguments), **(given or {})}
    equations = list(_equations(program, arguments))
    _solve_all(program, equations, known)
    # The stride of an extent of 1 is never used and may be anything: it comes last.
    _solve_all(program, list(_equations(program, arguments, strict=False)), known)
    for var in program.symbols:
        if var.name not in known:
            raise ArgumentError(
                f"the symbol '{var.name}' of '{program.name}' does not follow from its arguments"
            )
    for where, extent, actual in equations:
        expected = _size(where, extent, known)
        if expected != actual:
            raise ArgumentError(f"{where} is {actual}, expected {expected}")
    return known


def _integers(program: Program, arguments: Mapping[str, Any]) -> dict[str, int]:
    """The integers among the scalar arguments, which extents may be written in."""
    scalars = [param.value for param in program.params if isinstance(param.value, Var)]
    return {
        var.name: int(arguments[var.name])
        for var in scalars
        if var.dtype.is_int and var.name in arguments
    }


def _solve_all(
    program: Program, equations: list[tuple[str, Expr, int]], known: dict[str, int]
) -> None:
    """Add to `known` the symbols of `program` that follow from `equations`."""
    symbols = {var.name for var in program.symbols}
    progress = True
    while progress:
        progress = False
        for where, extent, actual in equations:
            free = [var for var in variables(extent) if var.name not in known]
            if len(free) == 1 and free[0].name in symbols:
                known[free[0].name] = _solve(where, extent, free[0], actual, known)
                progress = True


def _equations(
    program: Program, arguments: Mapping[str, Any], strict: bool = True
) -> Iterator[tuple[str, Expr, int]]:
    """What must equal what: (description, expression, actual value). Flattened parameters give no
    equation; nor does the stride of an extent of 1 where `strict`, nor None passed for a tensor
    that is never used.
    """
    used = set(buffers_of(program.body))
    for param in program.params:
        buffer = param.value
        if not isinstance(buffer, Buffer) or param.output:
            continue
        if param.name in arguments and arguments[param.name] is None:
            if buffer in used:
                raise ArgumentError(f"'{param.name}' is None, and '{program.name}' uses it")
            continue
        array = _given_array(param.name, buffer.dtype, arguments)
        shape = list(array.shape)
        if _is_packed(array, buffer.dtype):
            shape[-1] *= 2
        if len(shape) != len(buffer.shape):
            if len(buffer.shape) == 1:
                continue
            raise ArgumentError(
                f"'{param.name}' has {len(shape)} dimensions, expected {len(buffer.shape)}"
            )
        for axis, (extent, actual) in enumerate(zip(buffer.shape, shape, strict=True)):
            yield f"extent {axis} of '{param.name}'", extent, actual
        for axis, stride in enumerate(buffer.strides):
            if shape[axis] != 1 or not strict:
                yield (
                    f"stride {axis} of '{param.name}'",
                    stride,
                    array.strides[axis] // array.itemsize,
                )


def _solve(where: str, extent: Expr, symbol: Var, actual: int, known: Mapping[str, int]) -> int:
    at = [exact_size(extent, {**known, symbol.name: value}) for value in (0, 1, 2)]
    slope = at[1] - at[0]
    size = None if slope == 0 or (actual - at[0]) % slope else (actual - at[0]) // slope
    if size is None or size < 0 or at[2] - at[1] != slope:
        raise ArgumentError(
            f"{where} is {actual}, for which the symbol '{symbol.name}' has no solution"
        )
    return size


def known_shape(buffer: Buffer, symbols: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of `buffer` where the symbols have these values."""
    return tuple(
        _size(f"extent {d} of '{buffer.name}'", extent, symbols)
        for d, extent in enumerate(buffer.shape)
    )


def check_grids(program: Program, known: Mapping[str, int]) -> None:
    """Raise `ArgumentError` for a grid whose extents wrap around with these symbols and scalars."""
    for stmt in statements(program.body):
        for extent in stmt.grid if isinstance(stmt, Kernel) else ():
            from_data = has_loads(extent)
            if not from_data and all(var.name in known for var in variables(extent)):
                _size(f"an extent of the grid of '{program.name}'", extent, known)


def known_grid(launch: Kernel, known: Mapping[str, int]) -> tuple[int, ...] | None:
    """The blocks of a launch along each axis with these symbols and scalars; None where they come
    from elsewhere, as from data.
    """
    from_data = any(has_loads(extent) for extent in launch.grid)
    if from_data or any(var.name not in known for each in launch.grid for var in variables(each)):
        return None
    return tuple(_size("an extent of the grid", extent, known) for extent in launch.grid)


def _size(what: str, extent: Expr, known: Mapping[str, int]) -> int:
    try:
        return exact_size(extent, known)
    except WrappedSizeError as error:
        raise ArgumentError(
            f"{what} is {error.number}, which '{error.dtype}' does not hold", WIDER
        ) from None


def scalar_value(var: Var, arguments: Mapping[str, Any]) -> Value:
    """The scalar argument `var`, in its dtype."""
    if var.name not in arguments:
        raise ArgumentError(f"the argument '{var.name}' is missing")
    value = arguments[var.name]
    if var.dtype.kind == "handle" and not isinstance(value, int | np.integer):
        value = as_numpy(value, DType("uint8")).ctypes.data  # a tensor stands for its address
    return python_value(const(value, var.dtype).value, var.dtype)


def as_numpy(value: Any, dtype: DType) -> Array:
    """A numpy array of `value`, a numpy array or a torch tensor on the CPU."""
    if isinstance(value, np.ndarray):
        return value
    if type(value).__module__.partition(".")[0] == "torch":
        storage = storage_dtype(dtype)
        if storage.isbuiltin != 1:  # numpy itself has no such type: hand the bits over
            bits = {1: "uint8", 2: "uint16"}[storage.itemsize]
            torch = sys.modules["torch"]  # loaded already: the tensor is one of its
            array = np.asarray(value.detach().view(getattr(torch, bits)).numpy())
            return array if dtype.is_packed else array.view(storage)
        return np.asarray(value.detach().numpy())
    return np.asarray(value)


def _given_array(name: str, dtype: DType, arguments: Mapping[str, Any]) -> Array:
    if name not in arguments:
        raise ArgumentError(f"the argument '{name}' is missing")
    array = as_numpy(arguments[name], dtype)
    if dtype.bits == 6 and array.dtype == np.uint8:
        array = array.view(storage_dtype(dtype))
    if array.dtype != storage_dtype(dtype) and not _is_packed(array, dtype):
        raise ArgumentError(f"'{name}' has dtype '{array.dtype}', expected '{dtype}'")
    return array


def _is_packed(array: Array, dtype: DType) -> bool:
    """Whether an array holds two 4-bit elements per byte."""
    return dtype.is_packed and array.dtype in (np.int8, np.uint8)


def argument_array(
    name: str, buffer: Buffer, shape: tuple[int, ...], arguments: Mapping[str, Any]
) -> Array:
    """A copy of the argument `name` with one element per place, in `shape` (which may be flat where
    the argument is not).
    """
    dtype, shape = buffer.dtype, tuple(max(extent, 0) for extent in shape)
    if name in arguments and arguments[name] is None:
        return np.zeros(shape, storage_dtype(dtype))  # never used
    array = _given_array(name, dtype, arguments)
    if _is_packed(array, dtype):
        array = _unpack(array, dtype)
    if array.shape == shape:
        return _copied(array)
    if len(shape) == 1:
        flat: Array = memory_of(array) if array.size else np.zeros(shape, array.dtype)
        if flat.size == shape[0]:
            return _copied(flat)
    raise ArgumentError(f"'{name}' has shape {array.shape}, expected {shape}")


def _copied(array: Array) -> Array:
    """A copy with the strides of `array`, so that addresses in it mean the same."""
    if array.flags.c_contiguous:
        return copy_changed(np.zeros(array.shape, array.dtype), array)
    return np.lib.stride_tricks.as_strided(memory_of(array).copy(), array.shape, array.strides)


def copy_changed(into: Array, array: Array) -> Array:
    """Copy `array` to `into`, both contiguous, but write only the parts that differ. The operating
    system gives no memory for pages that nobody writes, so a large tensor with few values stays
    small.
    """
    if array.nbytes < _LARGE:
        into[...] = array
        return into
    old, new = into.reshape(-1).view(np.uint8), array.reshape(-1).view(np.uint8)
    for start in range(0, new.size, _PART):
        part = slice(start, start + _PART)
        if not np.array_equal(old[part], new[part]):
            old[part] = new[part]
    return into


def _unpack(array: Array, dtype: DType) -> Array:
    """Two elements per byte, the even one in the low half, as one element per byte."""
    bytes_ = array.view(np.uint8)
    halves = np.stack([bytes_ & 15, bytes_ >> 4], axis=-1).reshape(*array.shape[:-1], -1)
    if dtype.is_float:
        return halves.view(storage_dtype(dtype))
    return convert_array(halves, DType("uint8"), dtype)


def user_array(data: Array, buffer: Buffer, given: Any) -> Array:
    """The contents of a parameter in the form the caller passed it, packed when it was packed."""
    if given is None:
        return data
    original = as_numpy(given, buffer.dtype)
    if _is_packed(original, buffer.dtype):
        halves = data.reshape(*original.shape, 2).view(np.uint8) & 15
        return (halves[..., 0] | halves[..., 1] << 4).view(original.dtype)
    if not original.size:
        return original.copy()
    if data.shape == original.shape:
        return data
    if original.flags.c_contiguous:
        return data.reshape(original.shape)
    return np.lib.stride_tricks.as_strided(data, original.shape, original.strides)
