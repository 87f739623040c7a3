"""Device functions that emitted kernels call, for AMD's GPUs."""

from __future__ import annotations

from tileworkbench.compiler.emit.c_like.helpers import Helper, common_helpers
from tileworkbench.compiler.emit.hip.asynchronous import COPIES
from tileworkbench.compiler.emit.hip.atomics import ATOMICS
from tileworkbench.compiler.emit.hip.declarations import BIT_CASTS
from tileworkbench.compiler.emit.hip.exchanges import EXCHANGES
from tileworkbench.compiler.emit.hip.functions import function
from tileworkbench.compiler.emit.hip.tensors import TENSORS

_FENCE = '  __builtin_amdgcn_fence({order}, "{scope}");'


def _helper(signature: str, *lines: str, needs: tuple[str, ...] = ()) -> Helper:
    return Helper(function(signature, "\n".join(lines)), needs)


# Bytes of two words by number, those of the second word first: v_perm_b32 of "Vector ALU".
_PERM = "__builtin_amdgcn_perm"
_PICK_16 = f"""  const unsigned low = i & 1 ? 0x0302u : 0x0100u;
  const unsigned high = i + step & 1 ? 0x07060000u : 0x05040000u;
  return {_PERM}(w[(i + step) / 2], w[i / 2], low | high);"""
# Every second byte of two words, or the same byte of four words: two steps then, of which
# neighbouring elements share the first one.
_PICK_8 = f"""  const unsigned second = i & 1 ? 0x07050301u : 0x06040200u;
  if (step == 2) return {_PERM}(w[i / 4 + 1], w[i / 4], second);
  const unsigned pair = i & 2 ? 0x07030602u : 0x05010400u;
  const unsigned low = {_PERM}(w[(i + step) / 4], w[i / 4], pair);
  const unsigned high = {_PERM}(w[(i + 3 * step) / 4], w[(i + 2 * step) / 4], pair);
  return {_PERM}(high, low, i & 1 ? 0x07060302u : 0x05040100u);"""
# Every 16 lanes turn 4 rows of 16 elements, or 8 rows of bytes: each names 64 bits of a row and
# gets a column.
_TURN = """  typedef __attribute__((address_space(3))) {vector}* place;
  *({vector}*)to = __builtin_amdgcn_ds_read_tr{bits}_b64_{kind}((place)from);"""

HELPERS: dict[str, Helper] = {
    **common_helpers(function, BIT_CASTS, "high_product"),
    "odd_f32": _helper(
        "float odd_f32(double x)",
        "  float y = (float)x;",
        "  if (__builtin_fabs((double)y) > __builtin_fabs(x)) y = as_float(as_uint(y) - 1u);",
        "  return y < x || y > x ? as_float(as_uint(y) | 1u) : y;",
    ),
    "f16_to_f32": _helper(
        "float f16_to_f32(f16 x)",
        "  return (float)__builtin_bit_cast(_Float16, x);",
        needs=("f16",),
    ),
    "f16_from_f32": _helper(
        "f16 f16_from_f32(float x)",
        "  return __builtin_bit_cast(f16, (_Float16)x);",
        needs=("f16",),
    ),
    "set16": _helper(  # a vector, which clang fills by one conversion of two elements
        "void set16(unsigned* words, int i, unsigned short x)",
        "  i16r2 both = __builtin_bit_cast(i16r2, words[i / 2]);",
        "  both[i % 2] = (short)x;",
        "  words[i / 2] = __builtin_bit_cast(unsigned, both);",
    ),
    "small_f16": _helper(  # the lowest bits of 1024 are integers, and the difference is exact
        "float small_f16(int x, int low)",
        "  _Float16 y = __builtin_bit_cast(_Float16, (short)(x + (0x6400 - low)));",
        "  return (float)(_Float16)(y - (_Float16)(1024 - low));",
    ),
    "f16_pair": _helper(
        "unsigned f16_pair(float low, float high)",
        "  f16r2 y = {(_Float16)low, (_Float16)high};",
        "  return __builtin_bit_cast(unsigned, y);",
    ),
    "bf16_from_f32": _helper(
        "bf16 bf16_from_f32(float x)",
        "  unsigned bits = as_uint(x);",
        "  return x != x ? 0x7fff : (bf16)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);",
        needs=("bf16",),
    ),
    "sync_block": _helper(
        "void sync_block()",
        _FENCE.format(order="__ATOMIC_RELEASE", scope="workgroup"),
        "  __builtin_amdgcn_s_barrier();",
        _FENCE.format(order="__ATOMIC_ACQUIRE", scope="workgroup"),
    ),
    "sync_wave": _helper(
        "void sync_wave()",
        _FENCE.format(order="__ATOMIC_ACQ_REL", scope="wavefront"),
        "  __builtin_amdgcn_wave_barrier();",
    ),
    **{
        f"fence_{name}": _helper(
            f"void fence_{name}()", _FENCE.format(order="__ATOMIC_ACQ_REL", scope=scope)
        )
        for name, scope in (("block", "workgroup"), ("grid", "agent"))
    },
    "pick16": _helper("unsigned pick16(const unsigned* w, int i, int step)", _PICK_16),
    "pick8": _helper("unsigned pick8(const unsigned* w, int i, int step)", _PICK_8),
    **{
        f"read_turned_{bits}": _helper(
            f"void read_turned_{bits}(unsigned* to, const void* from)",
            _TURN.format(vector=vector, bits=bits, kind=kind),
        )
        for bits, vector, kind in ((16, "i16r4", "v4i16"), (8, "i32r2", "v2i32"))
    },
    **COPIES,
    **TENSORS,
    **ATOMICS,
    **EXCHANGES,
}
