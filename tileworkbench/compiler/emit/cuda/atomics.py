"""Device functions of atomic updates that C++ has no word for."""

from __future__ import annotations

from tileworkbench.compiler.emit.c_like.helpers import Helper
from tileworkbench.compiler.emit.cuda.functions import asm, function

_NAMES = {"float": "f32", "double": "f64"}


def _float_atomic(kind: str, ctype: str, bits: str, to: str, back: str) -> str:
    """A maximum or minimum: compare and swap on the element's bits."""
    op = f"f{kind}{'f' if ctype == 'float' else ''}"
    body = (
        f"  {bits} before = {to}(*(volatile {ctype}*)p);\n"
        "  for (;;) {\n"
        f"    {bits} after = {to}({op}({back}(before), x));\n"
        f"    {bits} found = atomicCAS(({bits}*)p, before, after);\n"
        f"    if (found == before) return {back}(before);\n"
        "    before = found;\n"
        "  }"
    )
    return function(f"{ctype} atomic_{kind}_{_NAMES[ctype]}({ctype}* p, {ctype} x)", body)


_SINGLE = ("float", "int", "__float_as_int", "__int_as_float")
_DOUBLE = ("double", "unsigned long long", "__double_as_longlong", "__longlong_as_double")


def _half_addition(name: str) -> str:
    """atom: "Atomic operations on global and shared memory"."""
    text = f"atom.add.noftz.{name} %0, [%1], %2;"
    body = [f"  {name} y;", asm(text, '"=h"(y)', '"l"(p), "h"(x)', "memory"), "  return y;"]
    return function(f"{name} atomic_add_{name}({name}* p, {name} x)", "\n".join(body))


_UPDATE_16 = """  unsigned short* word = (unsigned short*)((unsigned long long){byte} & ~1ull);
  unsigned short before = *(volatile unsigned short*)word;
  unsigned at = {at};
  for (;;) {{{make}
    unsigned short after = before & ~({mask} << at) | ((unsigned)made & {mask}) << at;
    unsigned short found = atomicCAS(word, before, after);
    if (found == before) {done}
    before = found;
  }}"""


def narrow_update(kind: str, c_type: str, bits: int, combined: str) -> tuple[str, Helper]:
    """Any update of an element of 8 or 16 bits: compare and swap of the two bytes it is in, from
    sm_70 on.

    `combined` is the new element, made from `old` and `x`.
    """
    name = f"atomic_{kind}_{c_type.replace(' ', '_')}"
    body = _UPDATE_16.format(
        byte="p",
        at="((unsigned long long)p & 1) * 8" if bits == 8 else "0",
        make=f"\n    {c_type} old = ({c_type})(before >> at), made = ({c_type})({combined});",
        mask=f"0x{(1 << bits) - 1:X}u",
        done="return old;",
    )
    return name, Helper(function(f"{c_type} {name}({c_type}* p, {c_type} x)", body))


def half_addition(name: str) -> tuple[str, Helper]:
    """The addition to a 16-bit float as one instruction."""
    return f"atomic_add_{name}", Helper(_half_addition(name), (name,))


def vector_addition(name: str, lanes: int, space: str) -> tuple[str, Helper]:
    """red: "Reduction operations on global and shared memory", of `lanes` neighbours "f16", "bf16"
    or "f32"; two halves are in one word.
    """
    single = name == "f32"
    c_type, letter, words = ("float", "f", lanes) if single else ("unsigned", "r", lanes // 2)
    registers = ", ".join(f"%{at + 1}" for at in range(words))
    vector, operand = (f".v{words}", f"{{{registers}}}") if words > 1 else ("", registers)
    kind = f"add{vector}.f32" if single else f"add.noftz{vector}.{name}x2"
    place = '"l"(__cvta_generic_to_global(p))' if space == "global" else '"r"(smem_address(p))'
    names = [f"x{at}" for at in range(words)]
    inputs = ", ".join([place, *(f'"{letter}"({each})' for each in names)])
    signature = ", ".join(["void* p", *(f"{c_type} {each}" for each in names)])
    called = f"{space}_add_{name}x{lanes}"
    text = asm(f"red.relaxed.gpu.{space}.{kind} [%0], {operand};", "", inputs, "memory")
    needs = ("smem_address",) if space == "shared" else ()
    return called, Helper(function(f"void {called}({signature})", text), needs)


# A barrier of the grid as a counter whose highest bit flips when all blocks have arrived: block 0
# adds what the others lack. It is left as the next one needs it, and begins at zero.
_SYNC_GRID = function(
    "void sync_grid(unsigned* counter)",
    """  __syncthreads();
  if (threadIdx.x == 0) {
    unsigned blocks = gridDim.x * gridDim.y * gridDim.z, before, now;
    bool first = blockIdx.x == 0 && blockIdx.y == 0 && blockIdx.z == 0;
    unsigned mine = first ? 0x80000000u - (blocks - 1) : 1;
    asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;"
                 : "=r"(before) : "l"(__cvta_generic_to_global(counter)), "r"(mine) : "memory");
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                   : "=r"(now) : "l"(__cvta_generic_to_global(counter)) : "memory");
    } while (((before ^ now) & 0x80000000u) == 0);
  }
  __syncthreads();""",
)

# The other half of the byte may belong to another thread.
_STORE_4 = function(
    "void store4(unsigned char* p, long long i, unsigned made)",
    _UPDATE_16.format(
        byte="(p + (i >> 1))",
        at="((unsigned long long)(p + (i >> 1)) & 1) * 8 + (i & 1) * 4",
        make="",
        mask="15u",
        done="return;",
    ),
)

ATOMICS: dict[str, Helper] = {
    "store4": Helper(_STORE_4),
    "sync_grid": Helper(_SYNC_GRID),
    **{
        f"atomic_{kind}_{_NAMES[form[0]]}": Helper(_float_atomic(kind, *form))
        for kind in ("max", "min")
        for form in (_SINGLE, _DOUBLE)
    },
}
