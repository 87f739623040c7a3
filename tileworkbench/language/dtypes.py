"""The dtype objects.

Each is its own name as a `str`, carries its facts, and makes constants and casts when called.
"""

from __future__ import annotations

from typing import Any

from tileworkbench.compiler.frontend.dtypes import TileDType

bool = TileDType("bool")
int4 = TileDType("int4")
uint4 = TileDType("uint4")
int8 = TileDType("int8")
int16 = TileDType("int16")
int32 = TileDType("int32")
int64 = TileDType("int64")
uint8 = TileDType("uint8")
uint16 = TileDType("uint16")
uint32 = TileDType("uint32")
uint64 = TileDType("uint64")
float16 = TileDType("float16")
bfloat16 = TileDType("bfloat16")
float32 = TileDType("float32")
tfloat32 = TileDType("tfloat32")
float64 = TileDType("float64")
float4_e2m1fn = TileDType("float4_e2m1fn")
float6_e2m3fn = TileDType("float6_e2m3fn")
float6_e3m2fn = TileDType("float6_e3m2fn")
float8_e4m3 = TileDType("float8_e4m3")
float8_e4m3fn = TileDType("float8_e4m3fn")
float8_e4m3fnuz = TileDType("float8_e4m3fnuz")
float8_e5m2 = TileDType("float8_e5m2")
float8_e5m2fnuz = TileDType("float8_e5m2fnuz")
float8_e8m0fnu = TileDType("float8_e8m0fnu")
float4_e2m1 = float4_e2m1fn
float8_e8m0 = float8_e8m0fnu
ptr = TileDType("handle")
handle = ptr

short = int16
int = int32
uint = uint32
long = int64
half = float16
float = float32
double = float64

SCALARS = (
    *(
        "bool",
        "int4",
        "uint4",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
    ),
    *("float16", "bfloat16", "float32", "tfloat32", "float64"),
    *("float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"),
    *(
        "float8_e4m3",
        "float8_e4m3fn",
        "float8_e4m3fnuz",
        "float8_e5m2",
        "float8_e5m2fnuz",
        "float8_e8m0fnu",
    ),
)
ALIASES = (
    *("ptr", "handle", "short", "int", "uint", "long", "half", "float", "double"),
    *("float4_e2m1", "float8_e8m0"),
)
VECTOR_LANES = (2, 4, 8, 16, 32, 64)
VECTORS = {
    f"{name}x{lanes}": TileDType(name).with_lanes(lanes)
    for name in SCALARS
    for lanes in VECTOR_LANES
}


def dtype(value: Any) -> TileDType:
    """The dtype that `value` names: text, a torch or numpy dtype, or Python's int, float and bool.

    Raises `TypeError` when it names none.

    >>> half = T.dtype("float16")
    """
    return TileDType(value)
