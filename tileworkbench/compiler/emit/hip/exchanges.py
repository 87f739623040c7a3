"""Exchanges between threads of a wave: permutations of lanes and votes.

A warp of the language is half a wave. Other lanes' values come by ds_bpermute, those of a lane
whose number differs in some bits by ds_swizzle ("Data Share"); votes are a ballot of the wave, of
which each half takes its own 32 bits.
"""

from __future__ import annotations

from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.emit.c_like.expressions import Expressions
from tileworkbench.compiler.emit.c_like.helpers import Helper
from tileworkbench.compiler.emit.c_like.text import wrapped
from tileworkbench.compiler.emit.hip.functions import function
from tileworkbench.compiler.ir import simt
from tileworkbench.compiler.ir.build import const_int

_BITS = 32  # lanes of a half, and of the patterns of ds_swizzle
_LANE = "  return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u));"
_TYPES = {"int": "i32", "unsigned": "u32", "float": "f32", "double": "f64"}
# To 32 or 64 bits and back, of the types that are not such bits themselves.
_BITS_OF = {
    "float": ("as_uint", "as_float"),
    "double": ("as_ulong", "as_double"),
    "int": ("(unsigned)", "(int)"),
    "long long": ("(unsigned long long)", "(long long)"),
}
_SOURCES = {
    "shfl": "lane & -width | x & width - 1",
    "shfl_xor": "(lane ^ x) < (lane | width - 1) + 1 ? lane ^ x : lane",
    "shfl_up": "(lane & width - 1) >= x ? lane - x : lane",
    "shfl_down": "(lane & width - 1) + x < width ? lane + x : lane",
}
_WIDE = """  unsigned low = read_lane((unsigned)x, lane);
  return (unsigned long long)read_lane((unsigned)(x >> 32), lane) << 32 | low;"""
_MATCH = """  unsigned first = lane_id() & 32u, there = half_ballot(true), found = 0;
  for (unsigned lane = 0; lane < 32u; ++lane)
    if (read_lane{wide}(x, first + lane) == x) found |= 1u << lane;
  return found & there & mask;"""
_COUNT = """  __shared__ unsigned count;
  sync_block();
  if (__builtin_amdgcn_workitem_id_x() == 0) count = 0;
  sync_block();
  if (on) __hip_atomic_fetch_add(&count, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
  sync_block();
  return count;"""
_BLOCK = {
    "block_count": "(int)count_block({0})",
    "block_any": "(count_block({0}) != 0)",
    "block_all": "(count_block(!{0}) == 0)",
}
_OPERATIONS = {"sum": "x + y", "and": "x & y", "or": "x | y", "xor": "x ^ y"} | {
    "max": "x > y ? x : y",
    "min": "x < y ? x : y",
}


def _helper(signature: str, body: str, *needs: str) -> Helper:
    return Helper(function(signature, body), needs)


EXCHANGES: dict[str, Helper] = {
    "lane_id": _helper("unsigned lane_id()", _LANE),
    "read_lane": _helper(
        "unsigned read_lane(unsigned x, unsigned lane)",
        "  return __builtin_amdgcn_ds_bpermute(4 * lane, x);",
    ),
    "read_lane_64": _helper(
        "unsigned long long read_lane_64(unsigned long long x, unsigned lane)", _WIDE, "read_lane"
    ),
    **{
        f"source_{kind}": _helper(
            f"unsigned source_{kind}(unsigned x, unsigned width)",
            f"  unsigned lane = lane_id();\n  return {text};",
            "lane_id",
        )
        for kind, text in _SOURCES.items()
    },
    "half_ballot": _helper(
        "unsigned half_ballot(bool on)",
        "  return (unsigned)(__builtin_amdgcn_ballot_w64(on) >> (lane_id() & 32u));",
        "lane_id",
    ),
    **{
        f"match_lanes{wide}": _helper(
            f"unsigned match_lanes{wide}({c_type} x, unsigned mask)",
            _MATCH.format(wide=wide),
            *("half_ballot", f"read_lane{wide}"),
        )
        for wide, c_type in (("", "unsigned"), ("_64", "unsigned long long"))
    },
    "count_block": _helper("unsigned count_block(bool on)", _COUNT, "sync_block"),
}


def exchange(stmt: simt.Exchange, expressions: Expressions) -> list[str]:
    """The declaration of what an exchange gives. Raises `UnsupportedError` for a dtype that the
    exchange is not there for.
    """
    args = [expressions(arg) for arg in stmt.args]
    c_type, name = expressions.c_type(stmt.var.dtype), expressions.named(stmt.var)
    return [f"const {c_type} {name} = {_value(stmt, args, c_type, expressions)};"]


def _value(stmt: simt.Exchange, args: list[str], c_type: str, expressions: Expressions) -> str:
    kind, use = stmt.kind, expressions.use
    mask = None if stmt.mask is None else f"(unsigned){wrapped(expressions(stmt.mask))}"
    named = "" if mask is None else f" & {mask}"
    if kind in _SOURCES:
        return _shuffled(stmt, args, c_type, expressions)
    if kind in _BLOCK:
        use("count_block")
        return _BLOCK[kind].format(wrapped(args[0]))
    if kind == "activemask":
        return f"{use('half_ballot')}(true)"
    if kind == "ballot":
        return f"{use('half_ballot')}({args[0]}){named}"
    if kind == "any_sync":
        return f"({use('half_ballot')}({args[0]}){named}) != 0"
    if kind == "all_sync":
        return f"({use('half_ballot')}(!{wrapped(args[0])}){named}) == 0"
    if kind.startswith("match"):
        return _matched(stmt, args[0], mask, expressions)
    if c_type not in _TYPES or (kind[5:] in ("and", "or", "xor") and stmt.var.dtype.is_float):
        raise UnsupportedError(
            f"'T.{kind.replace('_', '_reduce_')}' of '{stmt.var.dtype}' is not there on HIP",
            hint="convert the value to 'float32' or 'int32' first",
        )
    return f"{use(*_reduction(kind[5:], c_type))}({args[0]})"


def _shuffled(stmt: simt.Exchange, args: list[str], c_type: str, expressions: Expressions) -> str:
    use, wide = expressions.use, stmt.var.dtype.bits == 64
    to, back = _BITS_OF.get(c_type, ("", "" if wide or c_type == "unsigned" else f"({c_type})"))
    value = f"{to}({args[0]})" if to else args[0]
    distance = const_int(stmt.args[1])
    near = distance is not None and 0 < distance < min(stmt.width, _BITS)
    if stmt.kind == "shfl_xor" and near and not wide:
        pattern = f"{distance} << 10 | 31"
        return f"{back}(__builtin_amdgcn_ds_swizzle({value}, {pattern}))"
    name = use("read_lane_64" if wide else "read_lane")
    source = f"{use(f'source_{stmt.kind}')}({args[1]}, {stmt.width})"
    return f"{back}({name}({value}, {source}))" if back else f"{name}({value}, {source})"


def _matched(stmt: simt.Exchange, arg: str, mask: str | None, expressions: Expressions) -> str:
    dtype = stmt.args[0].dtype
    to = _BITS_OF.get(expressions.c_type(dtype), ("", ""))[0]
    value = f"{to}({arg})" if to else arg
    name = expressions.use("match_lanes_64" if dtype.bits == 64 else "match_lanes")
    equal = f"{name}({value}, {mask or '~0u'})"
    if stmt.kind == "match_any":
        return equal
    there = f"{expressions.use('half_ballot')}(true)" + (f" & {mask}" if mask else "")
    return f"{equal} == ({there}) ? ({there}) : 0u"


def _reduction(kind: str, c_type: str) -> tuple[str, Helper]:
    """A butterfly over the lanes of a half."""
    op, wide = _OPERATIONS[kind], c_type == "double"
    if c_type in ("float", "double") and kind in ("max", "min"):
        op = f"f{kind}{'' if wide else 'f'}(x, y)"
    to, back = _BITS_OF.get(c_type, ("", ""))
    read = "read_lane_64" if wide else "read_lane"
    name = f"warp_{kind}_{_TYPES[c_type]}"
    body = f"""#pragma unroll
  for (unsigned d = 16; d > 0; d /= 2) {{
    {c_type} y = {back}({read}({to}(x), lane_id() ^ d));
    x = {op};
  }}
  return x;"""
    return name, _helper(f"{c_type} {name}({c_type} x)", body, "lane_id", read)
