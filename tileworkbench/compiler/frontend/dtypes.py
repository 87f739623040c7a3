"""The dtype objects users hold: a `DType` that can be called, and converted from and to other
libraries' types.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tileworkbench.compiler.ir.types import DType, is_dtype_name

_PYTHON_TYPES = {int: "int32", float: "float32", bool: "bool"}
_TORCH_NAMES = {
    "tfloat32": "float32",
    "int4": "int8",
    "uint4": "uint8",
    "float4_e2m1fn": "float4_e2m1fn_x2",
    "float4_e2m1fnx2": "float4_e2m1fn_x2",  # torch's element is two of ours
    "float6_e2m3fn": "uint8",
    "float6_e3m2fn": "uint8",
}
_FROM_TORCH = {"float4_e2m1fn_x2": "float4_e2m1fnx2"}
_NUMPY_NAMES = {"tfloat32": "float32", "handle": "uint64"}


class Answer(int):
    """True or False, which may also be called."""

    def __call__(self) -> bool:
        return bool(self)

    def __repr__(self) -> str:
        return repr(bool(self))


class TileDType(DType):
    """A dtype of the language.

    `T.float16 == "float16"` holds, and `getattr(torch, T.float16)` works.

    Calling one makes a constant from a Python number, a cast from a value, and a fresh variable
    from nothing.

    >>> tile = T.alloc_shared((8, 64), T.float16)
    """

    __slots__ = ()

    def __new__(cls, name: Any) -> TileDType:
        made: TileDType = super().__new__(cls, name if type(name) is cls else dtype_name(name))  # type: ignore[assignment]
        return made

    def __repr__(self) -> str:
        return f"T.{str.__str__(self)}"

    def __call__(self, *values: Any) -> Any:
        """A constant, a cast or (without an argument) a fresh symbolic variable of this type.

        A vector type takes a scalar per lane, one for all lanes, or a vector. Raises `TypeError`
        for an operand without a conversion and `ValueError` for a number without a value here.
        """
        from tileworkbench.compiler.frontend.values import make_typed

        return make_typed(self, values)

    def __getattr__(self, name: str) -> Answer:
        """`is_float8`, `is_float4_e2m1fn` and their like: whether the name begins so. They are
        called or not, as one likes.
        """
        wanted = name.removeprefix("is_")
        if wanted == name or not wanted.startswith(("float", "bfloat", "int", "uint", "handle")):
            raise AttributeError(f"a dtype has no attribute '{name}'")
        scalar = str(self.scalar)
        return Answer(scalar == wanted or scalar.startswith(f"{wanted}_"))

    def as_torch(self) -> Any:
        """The torch dtype that stores this type. Raises `TypeError` when torch has none."""
        torch = import_module("torch")
        dtype = getattr(torch, _TORCH_NAMES.get(str(self), str(self)), None)
        if dtype is None:
            raise TypeError(f"torch has no dtype for '{self}'")
        return dtype

    def as_numpy(self) -> Any:
        """The numpy dtype that stores this type (from ml_dtypes where numpy has none).

        Raises `TypeError` if there is none.
        """
        import ml_dtypes
        import numpy as np

        name = _NUMPY_NAMES.get(str(self), str(self))
        dtype = getattr(np, "bool_" if name == "bool" else name, None) or getattr(
            ml_dtypes, name, None
        )
        if dtype is None:
            raise TypeError(f"numpy has no dtype for '{self}'")
        return np.dtype(dtype)


def dtype_name(value: Any) -> str:
    """The name of a dtype given as text, dtype object, torch or numpy dtype, or the Python types
    int, float and bool.

    Raises `TypeError` for anything else.
    """
    if isinstance(value, str):
        return str(value)
    if isinstance(value, type):
        return _PYTHON_TYPES.get(value) or value.__name__.rstrip("_")
    text = str(getattr(value, "name", value)).removeprefix("torch.")
    return _FROM_TORCH.get(text, text)


def to_dtype(value: Any) -> DType:
    """`value` (see `dtype_name`) as the IR's dtype. Raises `TypeError` when it is none."""
    return DType(dtype_name(value))


def is_dtype(value: Any) -> bool:
    """Whether `value` can stand where a dtype is expected."""
    return is_dtype_name(dtype_name(value))
