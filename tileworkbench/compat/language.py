"""Names of `tilelang.language` beyond those of `tileworkbench.language`: TVM's notation, and older
spellings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tileworkbench.language as language
from tileworkbench.compat import branches, nodes
from tileworkbench.compiler.diagnostics import TileTypeError
from tileworkbench.compiler.frontend import function
from tileworkbench.compiler.frontend.dtypes import TileDType
from tileworkbench.compiler.frontend.errors import placed_outside
from tileworkbench.compiler.frontend.function import PrimFunc
from tileworkbench.compiler.frontend.tensors import TensorValue
from tileworkbench.compiler.frontend.values import describe, to_value
from tileworkbench.language.functions import checked_function

_ACCESSES = {1: "r", 2: "w", 3: "rw"}


@placed_outside
def prim_func(func: Callable[..., Any]) -> PrimFunc:
    """`T.prim_func`; a function without T.Kernel is executed once, by one thread."""
    return function.prim_func(checked_function(func, "T.prim_func"), launches=False)


def index_to_coordinates(index: Any, shape: Sequence[Any]) -> list[Any]:
    """The indices of element number `index` of a shape, in row-major order."""
    coordinates = []
    for extent in reversed(shape[1:]):
        coordinates.append(index % extent)
        index = index // extent
    return [index, *reversed(coordinates)]


def buffer_store(buffer: Any, value: Any, indices: Sequence[Any]) -> None:
    """`buffer[indices] = value`."""
    if not isinstance(buffer, TensorValue):
        raise TileTypeError(f"T.buffer_store takes a tensor, not {describe(buffer)}")
    buffer.store(tuple(indices), value)


def type_annotation(dtype: Any) -> TileDType:
    """The dtype that `tvm_access_ptr` is given."""
    return TileDType(dtype)


def tvm_access_ptr(ptype: Any, data: Any, offset: Any, extent: Any, rw_mask: int) -> Any:
    """The address of the element that is `offset` elements after the first of a tensor's memory
    (`tensor.data`), counted in row-major order; see `T.access_ptr`.
    """
    if not isinstance(data, TensorValue):
        raise TileTypeError(f"T.tvm_access_ptr takes the memory of a tensor, not {describe(data)}")
    place = data[tuple(index_to_coordinates(offset, data.shape))]
    return language.access_ptr(place, _ACCESSES.get(rw_mask, "rw"), extent)


def tvm_warp_shuffle(mask: Any, value: Any, lane: Any, width: int, warp_size: int) -> Any:
    """`T.shfl_sync` as TVM spells it."""
    return language.shfl_sync(value, lane, width, mask)


def tvm_warp_shuffle_up(mask: Any, value: Any, offset: Any, width: int, warp_size: int) -> Any:
    """`T.shfl_up` as TVM spells it."""
    return language.shfl_up(value, offset, width, mask)


def tvm_warp_shuffle_down(mask: Any, value: Any, offset: Any, width: int, warp_size: int) -> Any:
    """`T.shfl_down` as TVM spells it."""
    return language.shfl_down(value, offset, width, mask)


def ieee_frsqrt(value: Any, rounding_mode: str = "rn") -> Any:
    """`T.ieee_frsqrt`; TileLang has none of float64, in no direction. Raises `TileTypeError`."""
    if to_value(value).expr.dtype == "float64":
        raise TileTypeError(
            "T.ieee_frsqrt: frsqrt is not supported for float64 in TileLang's scripts",
            hint="take that of tileworkbench.language, or cast it to float32",
        )
    return language.ieee_frsqrt(value, rounding_mode)


_FUNCTIONS = (
    prim_func,
    ieee_frsqrt,
    buffer_store,
    index_to_coordinates,
    type_annotation,
    tvm_access_ptr,
    tvm_warp_shuffle,
    tvm_warp_shuffle_down,
    tvm_warp_shuffle_up,
)
NAMES: dict[str, Any] = {
    # `T.Buffer` declares parameters there, too, and the functions of the language take more forms.
    **{
        name: node
        for name, node in nodes.NODES.items()
        if name == "Var" or name not in language.__all__
    },
    **{function.__name__: function for function in _FUNCTIONS},
    "Else": branches.otherwise,
    "If": branches.IfBlock,
    "Then": branches.then,
    "boolean": language.bool,
    "dtype": TileDType,
    "func_attr": branches.no_effect,
    "gemm_v1": language.gemm,
    "gemm_v2": language.gemm,
    "reads": branches.no_effect,
    "sblock": branches.sblock,
    "sblock_alloc_buffer": language.alloc_buffer,
    "sblock_attr": branches.sblock_attr,
    "tvm_warp_activemask": language.activemask,
    "writes": branches.no_effect,
}
