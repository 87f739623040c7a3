"""Atomic updates, and what threads of several blocks do together."""

from __future__ import annotations

from tileworkbench.compiler.emit.c_like.helpers import Helper
from tileworkbench.compiler.emit.hip.functions import function

_ORDER = "__ATOMIC_RELAXED"
_AGENT = "__HIP_MEMORY_SCOPE_AGENT"


def atomic(kind: str, place: str, value: str) -> str:
    """An update of 32 or 64 bits as one instruction."""
    return f"__hip_atomic_fetch_{kind}({place}, {value}, {_ORDER}, {_AGENT})"


_UPDATE = """  unsigned* word = (unsigned*)((unsigned long long){byte} & ~3ull);
  unsigned at = {at}, before = *(volatile unsigned*)word;
  for (;;) {{{make}
    unsigned after = before & ~({mask} << at) | ((unsigned)made & {mask}) << at;
    if (__hip_atomic_compare_exchange_strong(
            word, &before, after, __ATOMIC_RELAXED, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT))
      {done}
  }}"""


def narrow_update(kind: str, c_type: str, bits: int, combined: str) -> tuple[str, Helper]:
    """Any update of an element of 8 or 16 bits: compare and swap of the word it is in.

    `combined` is the new element, made from `old` and `x`.
    """
    name = f"atomic_{kind}_{c_type.replace(' ', '_')}"
    body = _UPDATE.format(
        byte="p",
        at="((unsigned long long)p & 3) * 8",
        make=f"\n    {c_type} old = ({c_type})(before >> at), made = ({c_type})({combined});",
        mask=f"0x{(1 << bits) - 1:X}u",
        done="return old;",
    )
    return name, Helper(function(f"{c_type} {name}({c_type}* p, {c_type} x)", body))


def float_update(kind: str, c_type: str, combined: str) -> tuple[str, Helper]:
    """A maximum or minimum of floats: compare and swap of the element's bits."""
    bits, to, back = {
        "float": ("unsigned", "as_uint", "as_float"),
        "double": ("unsigned long long", "as_ulong", "as_double"),
    }[c_type]
    name = f"atomic_{kind}_{c_type}"
    body = f"""  {bits} before = {to}(*(volatile {c_type}*)p);
  for (;;) {{
    {c_type} old = {back}(before);
    if (__hip_atomic_compare_exchange_strong(({bits}*)p, &before, {to}({combined}),
            __ATOMIC_RELAXED, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT))
      return old;
  }}"""
    return name, Helper(function(f"{c_type} {name}({c_type}* p, {c_type} x)", body))


# A barrier of the grid as a counter whose highest bit flips when all blocks have arrived: block 0
# adds what the others lack. It is left as the next one needs it, and begins at zero.
_SYNC_GRID = function(
    "void sync_grid(unsigned* counter)",
    """  sync_block();
  if (__builtin_amdgcn_workitem_id_x() == 0) {
    unsigned blocks = __builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x()
        * __builtin_amdgcn_grid_size_y() * __builtin_amdgcn_grid_size_z();
    bool first = __builtin_amdgcn_workgroup_id_x() == 0 && __builtin_amdgcn_workgroup_id_y() == 0
        && __builtin_amdgcn_workgroup_id_z() == 0;
    unsigned mine = first ? 0x80000000u - (blocks - 1) : 1;
    unsigned before = __hip_atomic_fetch_add(
        counter, mine, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_AGENT);
    while (((before ^ __hip_atomic_load(counter, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT))
            & 0x80000000u) == 0)
      __builtin_amdgcn_s_sleep(1);
  }
  sync_block();""",
)
# The other half of the byte may belong to another thread.
_STORE_4 = function(
    "void store4(unsigned char* p, long long i, unsigned made)",
    _UPDATE.format(
        byte="(p + (i >> 1))",
        at="((unsigned long long)(p + (i >> 1)) & 3) * 8 + (i & 1) * 4",
        make="",
        mask="15u",
        done="return;",
    ),
)
ATOMICS: dict[str, Helper] = {
    "store4": Helper(_STORE_4),
    "sync_grid": Helper(_SYNC_GRID, ("sync_block",)),
}
