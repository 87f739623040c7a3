"""Device functions that emitted kernels call, each pasted only where it is used.

No header is included and nothing is a template: 16-bit floats travel as bits, and what C++ has no
word for is one line of inline PTX (PTX ISA 8.0; the sections are named beside the functions).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Helper:
    """One device function, the helpers it calls, and the architecture it needs (80 is sm_80)."""

    text: str
    needs: tuple[str, ...] = ()
    arch: int = 70


def _function(signature: str, body: str) -> str:
    return f"__device__ __forceinline__ {signature} {{\n{body}\n}}"


def _asm(text: str, outputs: str = "", inputs: str = "", clobbers: str = "") -> str:
    tail = f' : "{clobbers}"' if clobbers else ""
    return f'  asm volatile("{text}" : {outputs} : {inputs}{tail});'


def _convert(name: str, to: str, from_: str, text: str, constraints: tuple[str, str]) -> str:
    out, into = constraints
    body = f'  {to} y;\n  asm("{text}" : "={out}"(y) : "{into}"(x));\n  return y;'
    return _function(f"{to} {name}({from_} x)", body)


def _load_matrix(count: int, transpose: bool) -> str:
    """ldmatrix: "Warp-level matrix load instruction"."""
    suffix = "_trans" if transpose else ""
    registers = ", ".join(f"%{i}" for i in range(count))
    outputs = ", ".join(f'"=r"(r[{i}])' for i in range(count))
    trans = ".trans" if transpose else ""
    text = f"ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{registers}}}, [%{count}];"
    body = _asm(text, outputs, '"r"(row)', "memory")
    return _function(f"void ldmatrix_x{count}{suffix}(unsigned* r, unsigned row)", body)


def _store_matrix(count: int, transpose: bool) -> str:
    """stmatrix: "Warp-level matrix store instruction"."""
    suffix = "_trans" if transpose else ""
    registers = ", ".join(f"%{i + 1}" for i in range(count))
    inputs = ", ".join(['"r"(row)', *(f'"r"(r[{i}])' for i in range(count))])
    trans = ".trans" if transpose else ""
    text = f"stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [%0], {{{registers}}};"
    body = _asm(text, "", inputs, "memory")
    return _function(f"void stmatrix_x{count}{suffix}(unsigned row, const unsigned* r)", body)


_CP_ASYNC = {
    size: _function(
        f"void cp_async_{size}(unsigned to, const void* from)",
        _asm(
            f"cp.async.{'cg' if size == 16 else 'ca'}.shared.global [%0], [%1], {size};",
            "",
            '"r"(to), "l"(from)',
            "memory",
        ),
    )
    for size in (4, 8, 16)
}
_CP_ASYNC_ZERO = {
    size: _function(
        f"void cp_async_{size}_or_zero(unsigned to, const void* from, bool inside)",
        _asm(
            f"cp.async.{'cg' if size == 16 else 'ca'}.shared.global [%0], [%1], {size}, %2;",
            "",
            f'"r"(to), "l"(from), "r"(inside ? {size} : 0)',
            "memory",
        ),
    )
    for size in (4, 8, 16)
}


def _float_atomic(kind: str, ctype: str, bits: str, to: str, back: str) -> str:
    """A maximum or minimum: compare and swap on the element's bits."""
    op = f"f{kind}{'f' if ctype == 'float' else ''}"
    body = (
        f"  {bits} before = {to}(*p);\n"
        "  for (;;) {\n"
        f"    {bits} after = {to}({op}({back}(before), x));\n"
        f"    {bits} found = atomicCAS(({bits}*)p, before, after);\n"
        f"    if (found == before) return {back}(before);\n"
        "    before = found;\n"
        "  }"
    )
    return _function(f"{ctype} atomic_{kind}_{_NAMES[ctype]}({ctype}* p, {ctype} x)", body)


_SINGLE = ("float", "int", "__float_as_int", "__int_as_float")
_DOUBLE = ("double", "unsigned long long", "__double_as_longlong", "__longlong_as_double")


def _half_atomic(kind: str, name: str) -> str:
    """Any update of a 16-bit element: compare and swap, of so few bits from sm_70 on."""
    combined = {
        "add": f"{name}_to_f32(old) + {name}_to_f32(x)",
        "max": f"fmaxf({name}_to_f32(old), {name}_to_f32(x))",
        "min": f"fminf({name}_to_f32(old), {name}_to_f32(x))",
    }[kind]
    body = (
        f"  {name} old = *p;\n"
        "  for (;;) {\n"
        f"    {name} found = atomicCAS(p, old, {name}_from_f32({combined}));\n"
        "    if (found == old) return old;\n"
        "    old = found;\n"
        "  }"
    )
    return _function(f"{name} atomic_{kind}_{name}({name}* p, {name} x)", body)


def _warp(kind: str, op: str, ctype: str) -> str:
    body = (
        "#pragma unroll\n"
        "  for (int d = 16; d > 0; d /= 2) {\n"
        f"    {ctype} y = __shfl_xor_sync(0xffffffffu, x, d);\n"
        f"    x = {op};\n"
        "  }\n"
        "  return x;"
    )
    return _function(f"{ctype} warp_{kind}_{_NAMES[ctype]}({ctype} x)", body)


_NAMES = {"int": "i32", "unsigned": "u32", "float": "f32", "double": "f64"}
_WARP_OPS = {
    "sum": "x + y",
    "and": "x & y",
    "or": "x | y",
    "xor": "x ^ y",
}
_WARP_ORDER = {
    "int": ("x > y ? x : y", "x < y ? x : y"),
    "unsigned": ("x > y ? x : y", "x < y ? x : y"),
    "float": ("fmaxf(x, y)", "fminf(x, y)"),
    "double": ("fmax(x, y)", "fmin(x, y)"),
}


def _warp_helpers() -> dict[str, Helper]:
    found: dict[str, Helper] = {}
    for ctype, name in _NAMES.items():
        ops = {"sum": _WARP_OPS["sum"]}
        if ctype in ("int", "unsigned"):
            ops = dict(_WARP_OPS)
        ops["max"], ops["min"] = _WARP_ORDER[ctype]
        for kind, op in ops.items():
            found[f"warp_{kind}_{name}"] = Helper(_warp(kind, op, ctype))
    return found


def _mbarrier() -> dict[str, Helper]:
    """ "Parallel Synchronization and Communication Instructions: mbarrier"."""
    wait = (
        "  unsigned done;\n"
        "  do {\n"
        '    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; "\n'
        '                 "selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(barrier), "r"(parity) '
        ': "memory");\n'
        "  } while (!done);"
    )
    test = wait.replace("try_wait", "test_wait")
    arrive = "{ .reg .b64 s; mbarrier.arrive.shared.b64 s, [%0]; }"
    return {
        "mbarrier_init": Helper(
            _function(
                "void mbarrier_init(unsigned barrier, unsigned count)",
                _asm(
                    "mbarrier.init.shared.b64 [%0], %1;",
                    "",
                    '"r"(barrier), "r"(count)',
                    "memory",
                ),
            ),
            arch=80,
        ),
        "mbarrier_arrive": Helper(
            _function(
                "void mbarrier_arrive(unsigned barrier)",
                _asm(arrive, "", '"r"(barrier)', "memory"),
            ),
            arch=80,
        ),
        "mbarrier_expect": Helper(
            _function(
                "void mbarrier_expect(unsigned barrier, unsigned bytes)",
                _asm(
                    "mbarrier.expect_tx.relaxed.cta.shared.b64 [%0], %1;",
                    "",
                    '"r"(barrier), "r"(bytes)',
                    "memory",
                ),
            ),
            arch=90,
        ),
        "mbarrier_wait": Helper(
            _function("void mbarrier_wait(unsigned barrier, unsigned parity)", test), arch=80
        ),
    }


# Philox4x32-10: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3".
_PHILOX = """__device__ __forceinline__ unsigned philox(
    unsigned a, unsigned b, unsigned c, unsigned d, unsigned key, unsigned other, unsigned word) {
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    unsigned high = __umulhi(0xD2511F53u, a), low = 0xD2511F53u * a;
    unsigned above = __umulhi(0xCD9E8D57u, c), below = 0xCD9E8D57u * c;
    a = above ^ b ^ key, b = below, c = high ^ d ^ other, d = low;
    key += 0x9E3779B9u, other += 0xBB67AE85u;
  }
  return word == 0 ? a : word == 1 ? b : word == 2 ? c : d;
}"""

HELPERS: dict[str, Helper] = {
    "f16": Helper("typedef unsigned short f16;"),
    "bf16": Helper("typedef unsigned short bf16;"),
    "f16_to_f32": Helper(
        _convert("f16_to_f32", "float", "f16", "cvt.f32.f16 %0, %1;", ("f", "h")), ("f16",)
    ),
    "f16_from_f32": Helper(
        _convert("f16_from_f32", "f16", "float", "cvt.rn.f16.f32 %0, %1;", ("h", "f")), ("f16",)
    ),
    "bf16_to_f32": Helper(
        _function("float bf16_to_f32(bf16 x)", "  return __uint_as_float((unsigned)x << 16);"),
        ("bf16",),
    ),
    "bf16_from_f32": Helper(
        _convert("bf16_from_f32", "bf16", "float", "cvt.rn.bf16.f32 %0, %1;", ("h", "f")),
        ("bf16",),
        80,
    ),
    "f16_pair": Helper(
        _function(
            "unsigned f16_pair(float low, float high)",
            '  unsigned y;\n  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));'
            "\n  return y;",
        ),
        ("f16",),
        80,
    ),
    "bf16_pair": Helper(
        _function(
            "unsigned bf16_pair(float low, float high)",
            '  unsigned y;\n  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));'
            "\n  return y;",
        ),
        ("bf16",),
        80,
    ),
    "get16": Helper(
        _function(
            "unsigned short get16(const unsigned* words, int i)",
            "  return (unsigned short)(words[i / 2] >> (i % 2 * 16));",
        )
    ),
    "set16": Helper(
        _function(
            "void set16(unsigned* words, int i, unsigned short x)",
            "  unsigned shift = i % 2 * 16;\n"
            "  words[i / 2] = (words[i / 2] & ~(0xffffu << shift)) | (unsigned)x << shift;",
        )
    ),
    "get8": Helper(
        _function(
            "unsigned char get8(const unsigned* words, int i)",
            "  return (unsigned char)(words[i / 4] >> (i % 4 * 8));",
        )
    ),
    "set8": Helper(
        _function(
            "void set8(unsigned* words, int i, unsigned char x)",
            "  unsigned shift = i % 4 * 8;\n"
            "  words[i / 4] = (words[i / 4] & ~(0xffu << shift)) | (unsigned)x << shift;",
        )
    ),
    "get4": Helper(
        _function(
            "unsigned char get4(const unsigned char* bytes, int i)",
            "  return bytes[i / 2] >> (i % 2 * 4) & 15;",
        )
    ),
    "set4": Helper(
        _function(
            "void set4(unsigned* words, int i, unsigned char x)",
            "  unsigned shift = i % 8 * 4;\n"
            "  words[i / 8] = (words[i / 8] & ~(15u << shift)) | (x & 15u) << shift;",
        )
    ),
    "philox": Helper(_PHILOX),
    "smem_address": Helper(
        _function(
            "unsigned smem_address(const void* p)",
            "  return (unsigned)__cvta_generic_to_shared(p);",
        )
    ),
    "floordiv": Helper(
        _function(
            "int floordiv(int a, int b)",
            "  int q = a / b;\n  return q - (a % b != 0 && (a < 0) != (b < 0));",
        )
    ),
    "floormod": Helper(
        _function(
            "int floormod(int a, int b)",
            "  int r = a % b;\n  return r != 0 && (r < 0) != (b < 0) ? r + b : r;",
        )
    ),
    "floordiv_i64": Helper(
        _function(
            "long long floordiv_i64(long long a, long long b)",
            "  long long q = a / b;\n  return q - (a % b != 0 && (a < 0) != (b < 0));",
        )
    ),
    "floormod_i64": Helper(
        _function(
            "long long floormod_i64(long long a, long long b)",
            "  long long r = a % b;\n  return r != 0 && (r < 0) != (b < 0) ? r + b : r;",
        )
    ),
    **{
        f"{kind}_nan{suffix}": Helper(
            _function(
                f"{ctype} {kind}_nan{suffix}({ctype} a, {ctype} b)",
                f"  return a != a ? a : b != b ? b : f{kind}{suffix}(a, b);",
            )
        )
        for kind in ("max", "min")
        for ctype, suffix in (("float", "f"), ("double", ""))
    },
    "cp_async_commit": Helper(
        _function(
            "void cp_async_commit()", '  asm volatile("cp.async.commit_group;" ::: "memory");'
        ),
        arch=80,
    ),
    "fence_async": Helper(
        _function(
            "void fence_async()", '  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");'
        ),
        arch=90,
    ),
    **{
        f"atomic_{kind}_{_NAMES[form[0]]}": Helper(_float_atomic(kind, *form))
        for kind in ("max", "min")
        for form in (_SINGLE, _DOUBLE)
    },
    **{f"cp_async_{n}": Helper(text, arch=80) for n, text in _CP_ASYNC.items()},
    **{f"cp_async_{n}_or_zero": Helper(text, arch=80) for n, text in _CP_ASYNC_ZERO.items()},
    **{
        f"{name}_x{count}{'_trans' if transpose else ''}": Helper(made(count, transpose), arch=arch)
        for name, made, arch in (("ldmatrix", _load_matrix, 75), ("stmatrix", _store_matrix, 90))
        for count in (1, 2, 4)
        for transpose in (False, True)
    },
    **{
        f"atomic_{kind}_{name}": Helper(
            _half_atomic(kind, name), (f"{name}_to_f32", f"{name}_from_f32")
        )
        for kind in ("add", "max", "min")
        for name in ("f16", "bf16")
    },
    **_warp_helpers(),
    **_mbarrier(),
}


def wait_helper(pending: int) -> tuple[str, Helper]:
    """cp.async.wait_group takes its count as a literal."""
    name = f"cp_async_wait_{pending}"
    text = f'  asm volatile("cp.async.wait_group {pending};" ::: "memory");'
    return name, Helper(_function(f"void {name}()", text), arch=80)


# PTX type names of mma operands and accumulators.
_PTX = {
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "tf32",
    "tfloat32": "tf32",
    "float64": "f64",
    "int8": "s8",
    "uint8": "u8",
    "int4": "s4",
    "uint4": "u4",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
}
_ACCUMULATORS = {"float32": ("f32", "f", "float"), "int32": ("s32", "r", "int")}


def mma_helper(m: int, n: int, k: int, a: str, b: str, c: str) -> tuple[str, Helper]:
    """mma.sync: "Warp-level matrix multiply-and-accumulate". `c` is updated in place.

    Raises `KeyError` for a dtype that no instruction takes.
    """
    ta, tb = _PTX[a], _PTX[b]
    name = f"mma_m{m}n{n}k{k}_{ta}" + ("" if ta == tb else f"_{tb}")
    double = a == "float64"
    bits = {"f64": 64, "f16": 16, "bf16": 16, "tf32": 32, "s8": 8, "u8": 8, "s4": 4, "u4": 4}
    width = bits.get(ta, 8)
    per = max(32, width)
    count_a, count_b = m * k * width // 32 // per, n * k * width // 32 // per
    if c == "float16":
        tc, constraint, ctype, count_c = "f16", "r", "unsigned", m * n // 64
        name += "_f16"
    elif double:
        tc, constraint, ctype, count_c = "f64", "d", "double", m * n // 32
    else:
        tc, constraint, ctype = _ACCUMULATORS[c]
        count_c = m * n // 32
    operand = "double" if double else "unsigned"
    letter = "d" if double else "r"
    at = iter(range(64))
    c_names = ", ".join(f"%{next(at)}" for _ in range(count_c))
    a_names = ", ".join(f"%{next(at)}" for _ in range(count_a))
    b_names = ", ".join(f"%{next(at)}" for _ in range(count_b))
    text = (
        f"mma.sync.aligned.m{m}n{n}k{k}.row.col.{tc}.{ta}.{tb}.{tc} "
        f"{{{c_names}}}, {{{a_names}}}, {{{b_names}}}, {{{c_names}}};"
    )
    outputs = ", ".join(f'"+{constraint}"(c[{i}])' for i in range(count_c))
    inputs = ", ".join(
        [
            *(f'"{letter}"(a[{i}])' for i in range(count_a)),
            *(f'"{letter}"(b[{i}])' for i in range(count_b)),
        ]
    )
    signature = f"void {name}({ctype}* c, const {operand}* a, const {operand}* b)"
    arch = (
        89 if ta in ("e4m3", "e5m2") else 75 if (m, k) in ((8, 16), (16, 8)) and width != 32 else 80
    )
    body = f'  asm volatile("{text}"\n               : {outputs}\n               : {inputs});'
    return name, Helper(_function(signature, body), arch=arch)


def resolve(names: dict[str, Helper]) -> list[str]:
    """The texts of the helpers in `names` and of all they need, needed ones first."""
    done: dict[str, str] = {}  # in order: what is needed comes first

    def add(name: str, helper: Helper) -> None:
        if name not in done:
            for needed in helper.needs:
                add(needed, names.get(needed) or HELPERS[needed])
            done[name] = helper.text

    for name, helper in names.items():
        add(name, helper)
    return list(done.values())
