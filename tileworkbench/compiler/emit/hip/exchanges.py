"""Exchanges between threads of a wave: permutations of lanes and votes.

A warp of the language is half a wave. The value of a lane whose number differs in one of the lowest
four bits comes by DPP, within the vector ALU ("Data Parallel Processing"); where several bits
differ or the fifth does by ds_swizzle, all others by ds_bpermute ("Data Share"). Votes are a ballot
of the wave, of which each half takes its own 32 bits.
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
_WIDE_XOR = """  unsigned low = read_xor_{0}((unsigned)x);
  return (unsigned long long)read_xor_{0}((unsigned)(x >> 32)) << 32 | low;"""
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


# Controls of DPP, one after the other: permutations of four lanes, a row of 16 turned by eight, and
# half a row mirrored, which differs in three bits, of which the second one takes two back.
_DPP = {1: ("0xB1",), 2: ("0x4E",), 4: ("0x141", "0x1B"), 8: ("0x128",)}


def _xor(distance: int) -> str:
    """What the lane has whose number differs by one bit, of the lowest five."""
    if distance == 16:
        return f"  return __builtin_amdgcn_ds_swizzle(x, {distance} << 10 | 31);"
    value = "x"
    for control in _DPP[distance]:
        value = f"__builtin_amdgcn_mov_dpp({value}, {control}, 15, 15, true)"
    return f"  return {value};"


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
        f"read_xor_{distance}": _helper(f"unsigned read_xor_{distance}(unsigned x)", _xor(distance))
        for distance in (*_DPP, 16)
    },
    **{
        f"read_xor_{distance}_64": _helper(
            f"unsigned long long read_xor_{distance}_64(unsigned long long x)",
            _WIDE_XOR.format(distance),
            f"read_xor_{distance}",
        )
        for distance in (*_DPP, 16)
    },
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
    if stmt.kind == "shfl_xor" and distance is not None and 0 < distance < min(stmt.width, _BITS):
        if distance & (distance - 1) == 0:
            name = use(f"read_xor_{distance}{'_64' if wide else ''}")
            return f"{back}({name}({value}))" if back else f"{name}({value})"
        if not wide:
            return f"{back}(__builtin_amdgcn_ds_swizzle({value}, {distance} << 10 | 31))"
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
    name, wider = f"warp_{kind}_{_TYPES[c_type]}", "_64" if wide else ""
    reads = [f"read_xor_{distance}{wider}" for distance in (16, 8, 4, 2, 1)]
    lines = [f"  {c_type} y;"]
    lines += [f"  y = {back}({read}({to}(x))), x = {op};" for read in reads]
    return name, _helper(f"{c_type} {name}({c_type} x)", "\n".join([*lines, "  return x;"]), *reads)
