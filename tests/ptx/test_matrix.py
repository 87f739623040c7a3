"""Matrix instructions, one warp at a time: fragments are filled from the ISA's formulas in CUDA."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest

from tests.ptx.support import Array, compile_program

pytestmark = pytest.mark.nvrtc


@dataclass(frozen=True)
class Case:
    """One shape of mma. The expressions give row and column of element i in terms of g (lane / 4)
    and t (lane % 4), as the ISA's figures have them; registers hold `packed` elements each."""

    shape: tuple[int, int, int]
    kinds: str  # d, a, b, c
    arch: str
    packed: int
    a_row: str
    a_column: str
    b_row: str
    words: tuple[int, int, int]  # registers of a, b and c

    @property
    def name(self) -> str:
        m, n, k = self.shape
        return f"m{m}n{n}k{k}.{self.kinds}"


_PAIRS = "i < 2 || (i >= 4 && i < 6) ? g : g + 8"
_PAIR_COLUMNS = "t * 2 + (i & 1) + (i >= 4 ? 8 : 0)"
CASES = (
    Case((16, 8, 16), "f32.f16.f16.f32", "sm_80", 2, _PAIRS, _PAIR_COLUMNS,
         "t * 2 + (i & 1) + (i >= 2 ? 8 : 0)", (4, 2, 4)),
    Case((16, 8, 16), "f16.f16.f16.f16", "sm_80", 2, _PAIRS, _PAIR_COLUMNS,
         "t * 2 + (i & 1) + (i >= 2 ? 8 : 0)", (4, 2, 2)),
    Case((16, 8, 16), "f32.bf16.bf16.f32", "sm_80", 2, _PAIRS, _PAIR_COLUMNS,
         "t * 2 + (i & 1) + (i >= 2 ? 8 : 0)", (4, 2, 4)),
    Case((16, 8, 8), "f32.f16.f16.f32", "sm_75", 2, "i < 2 ? g : g + 8", "t * 2 + (i & 1)",
         "t * 2 + i", (2, 1, 4)),
    Case((16, 8, 8), "f32.bf16.bf16.f32", "sm_80", 2, "i < 2 ? g : g + 8", "t * 2 + (i & 1)",
         "t * 2 + i", (2, 1, 4)),
    Case((16, 8, 8), "f32.tf32.tf32.f32", "sm_80", 1, "i == 0 || i == 2 ? g : g + 8",
         "i < 2 ? t : t + 4", "i == 0 ? t : t + 4", (4, 2, 4)),
    Case((16, 8, 4), "f32.tf32.tf32.f32", "sm_80", 1, "i == 0 ? g : g + 8", "t", "t", (2, 1, 4)),
    Case((8, 8, 4), "f64.f64.f64.f64", "sm_80", 1, "g", "t", "t", (1, 1, 2)),
    Case((16, 8, 8), "f64.f64.f64.f64", "sm_90", 1, "i == 0 || i == 2 ? g : g + 8",
         "i < 2 ? t : t + 4", "i == 0 ? t : t + 4", (4, 2, 4)),
    Case((8, 8, 16), "s32.s8.s8.s32", "sm_75", 4, "g", "t * 4 + i", "t * 4 + i", (1, 1, 2)),
    Case((16, 8, 16), "s32.s8.u8.s32", "sm_80", 4, "i < 4 ? g : g + 8", "t * 4 + (i & 3)",
         "t * 4 + i", (2, 1, 4)),
    Case((16, 8, 32), "s32.s8.s8.s32", "sm_80", 4, "i < 4 || (i >= 8 && i < 12) ? g : g + 8",
         "t * 4 + (i & 3) + (i >= 8 ? 16 : 0)", "t * 4 + (i & 3) + (i >= 4 ? 16 : 0)", (4, 2, 4)),
    Case((16, 8, 32), "s32.u8.s8.s32", "sm_80", 4, "i < 4 || (i >= 8 && i < 12) ? g : g + 8",
         "t * 4 + (i & 3) + (i >= 8 ? 16 : 0)", "t * 4 + (i & 3) + (i >= 4 ? 16 : 0)", (4, 2, 4)),
    Case((16, 8, 32), "f32.e4m3.e4m3.f32", "sm_89", 4, "i < 4 || (i >= 8 && i < 12) ? g : g + 8",
         "t * 4 + (i & 3) + (i >= 8 ? 16 : 0)", "t * 4 + (i & 3) + (i >= 4 ? 16 : 0)", (4, 2, 4)),
    Case((16, 8, 32), "f32.e5m2.e4m3.f32", "sm_89", 4, "i < 4 || (i >= 8 && i < 12) ? g : g + 8",
         "t * 4 + (i & 3) + (i >= 8 ? 16 : 0)", "t * 4 + (i & 3) + (i >= 4 ? 16 : 0)", (4, 2, 4)),
    Case((16, 8, 32), "s32.s4.s4.s32", "sm_80", 8, "i < 8 ? g : g + 8", "t * 8 + (i & 7)",
         "t * 8 + i", (2, 1, 4)),
    Case((16, 8, 64), "s32.s4.u4.s32", "sm_80", 8, "i < 8 || (i >= 16 && i < 24) ? g : g + 8",
         "t * 8 + (i & 7) + (i >= 16 ? 32 : 0)", "t * 8 + (i & 7) + (i >= 8 ? 32 : 0)", (4, 2, 4)),
)  # fmt: skip

_ELEMENT = {1: "unsigned", 2: "unsigned short", 4: "unsigned char", 8: "unsigned char"}


def mma_source(case: Case) -> str:
    """A kernel of one mma: A is row-major, B column-major, an element of 4 bits in a byte."""
    m, n, k = case.shape
    d_kind = case.kinds.split(".")[0]
    wide = d_kind == "f64"
    element = "double" if wide else _ELEMENT[case.packed]
    word, letter = ("double", "d") if wide else ("unsigned", "r")
    result = {"f32": ("float", "f"), "s32": ("int", "r"), "f16": ("unsigned", "r")}
    out, out_letter = result.get(d_kind, ("double", "d"))
    size = 0 if case.packed == 1 else 32 // case.packed
    counts = case.words
    joined = f"w[i / {case.packed}] |= (unsigned)v << (i % {case.packed} * {size})"
    store = "w[i] = v" if case.packed == 1 else joined
    numbers = iter(range(sum(counts) + counts[2]))
    lists = [
        "{" + ",".join(f"%{next(numbers)}" for _ in range(count)) + "}"
        for count in (counts[2], counts[0], counts[1])
    ]
    c_list = "{" + ",".join(f"%{number}" for number in range(counts[2])) + "}"
    outputs = ", ".join(f'"+{out_letter}"(c[{number}])' for number in range(counts[2]))
    inputs = ", ".join(
        [f'"{letter}"(a[{number}])' for number in range(counts[0])]
        + [f'"{letter}"(b[{number}])' for number in range(counts[1])]
    )
    pair = case.kinds.startswith("f16")
    c_row = f"(i / {1 if pair else 2} ? g + 8 : g)"
    c_place = f"{c_row} * 4 + t" if pair else f"{c_row} * 8 + t * 2 + i % 2"
    return f"""
extern "C" __global__ void one(const {element}* A, const {element}* B, {out}* C) {{
    int g = threadIdx.x / 4, t = threadIdx.x % 4;
    {word} a[{counts[0]}] = {{}}, b[{counts[1]}] = {{}};
    {out} c[{counts[2]}];
    {{ {word}* w = a;
      for (int i = 0; i < {counts[0] * case.packed}; i++) {{
        {element} v = A[({case.a_row}) * {k} + ({case.a_column})]; {store}; }} }}
    {{ {word}* w = b;
      for (int i = 0; i < {counts[1] * case.packed}; i++) {{
        {element} v = B[g * {k} + ({case.b_row})]; {store}; }} }}
    for (int i = 0; i < {counts[2]}; i++) c[i] = C[{c_place}];
    asm volatile("mma.sync.aligned.m{m}n{n}k{k}.row.col.{case.kinds} {lists[0]}, {lists[1]},"
                 " {lists[2]}, {c_list};" : {outputs} : {inputs});
    for (int i = 0; i < {counts[2]}; i++) C[{c_place}] = c[i];
}}"""


_STORED = {
    **{"f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "f64": np.float64},
    **{"s8": np.int8, "u8": np.uint8, "s4": np.int8, "u4": np.uint8},
    **{"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2},
}


def _random(kind: str, shape: tuple[int, int], seed: int) -> tuple[Array, Array]:
    """A matrix as bytes for the kernel and as exact numbers."""
    low = {"u8": 0, "u4": 0}.get(kind, -7)
    values = np.random.default_rng(seed).integers(low, 8, shape)
    stored = values.astype(_STORED[kind])
    exact = stored.astype(np.float64)
    if kind in ("s4", "u4"):
        stored = stored & 15
    return np.ascontiguousarray(stored).view(np.uint8).reshape(-1), exact


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_mma(case: Case) -> None:
    m, n, k = case.shape
    d_kind, a_kind, b_kind, _ = case.kinds.split(".")
    a_bytes, a = _random(a_kind, (m, k), 1)
    b_bytes, b = _random(b_kind, (n, k), 2)
    dtype = {"f32": np.float32, "s32": np.int32, "f16": np.float16, "f64": np.float64}[d_kind]
    c = np.random.default_rng(3).integers(-50, 50, (m, n)).astype(dtype)
    expected = c + a @ b.T
    program = compile_program(mma_source(case), case.arch)
    program.launch("one", (1,), (32,), [a_bytes, b_bytes, c])
    np.testing.assert_array_equal(c, expected.astype(dtype))


def test_tf32_does_not_read_the_lower_fraction() -> None:
    case = next(each for each in CASES if each.name == "m16n8k8.f32.tf32.tf32.f32")
    a = np.full((16, 8), 1 + 2**-12, dtype=np.float32)
    b, c = np.ones((8, 8), np.float32), np.zeros((16, 8), np.float32)
    compile_program(mma_source(case), case.arch).launch(
        "one", (1,), (32,), [a.reshape(-1), b.reshape(-1), c]
    )
    assert (c == 8).all()


MATRICES = """
__device__ unsigned at(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
template <int TRANS> __device__ void loads(const unsigned short* x, unsigned* y) {
    __shared__ __align__(16) unsigned short s[32 * 8];
    int t = threadIdx.x;
    for (int i = 0; i < 8; i++) s[t * 8 + i] = x[t * 8 + i];
    __syncwarp();
    unsigned r[4];
    if (TRANS)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at(s + t * 8)));
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at(s + t * 8)));
    for (int i = 0; i < 4; i++) y[i * 32 + t] = r[i];
}
extern "C" __global__ void rows(const unsigned short* x, unsigned* y) { loads<0>(x, y); }
extern "C" __global__ void columns(const unsigned short* x, unsigned* y) { loads<1>(x, y); }
extern "C" __global__ void halfway(const unsigned short* x, unsigned* y) {
    __shared__ __align__(16) unsigned short s[16 * 8];
    int t = threadIdx.x;
    for (int i = 0; i < 4; i++) s[t * 4 + i] = x[t * 4 + i];
    __syncwarp();
    unsigned a, b, c;
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
                 : "=r"(a) : "r"(at(s + t % 8 * 8)));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
                 : "=r"(b), "=r"(c) : "r"(at(s + t % 16 * 8)));
    y[t] = a; y[32 + t] = b; y[64 + t] = c;
}
#if __CUDA_ARCH__ >= 900
extern "C" __global__ void stores(const unsigned* x, unsigned short* y) {
    __shared__ __align__(16) unsigned short s[16 * 8];
    int t = threadIdx.x;
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1,%2};"
                 :: "r"(at(s + t % 16 * 8)), "r"(x[t]), "r"(x[32 + t]) : "memory");
    __syncwarp();
    for (int i = 0; i < 4; i++) y[t * 4 + i] = s[t * 4 + i];
}
#endif
"""


def test_ldmatrix_gives_pairs_of_a_row_or_of_a_column() -> None:
    program = compile_program(MATRICES)
    x = np.arange(256, dtype=np.uint16)
    matrices = x.reshape(4, 8, 8)
    for name, wanted in (("rows", matrices), ("columns", matrices.transpose(0, 2, 1))):
        y = np.zeros(128, dtype=np.uint32)
        run = program.launch(name, (1,), (32,), [x, y])
        assert (y.view(np.uint16) == wanted.reshape(-1)).all()
        (access,) = (each for each in run.accesses if each.opcode.startswith("ldmatrix"))
        assert (access.requests, access.units, access.ideal) == (1, 4, 4)
    y = np.zeros(96, dtype=np.uint32)
    program.launch("halfway", (1,), (32,), [x[:128], y])
    halves = y.view(np.uint16).reshape(3, 8, 8)
    assert (halves[0] == matrices[0]).all()
    assert (halves[1:] == matrices[:2].transpose(0, 2, 1)).all()


def test_stmatrix_is_the_inverse() -> None:
    x = np.arange(128, dtype=np.uint16)
    y = np.zeros(128, dtype=np.uint16)
    compile_program(MATRICES, "sm_90").launch("stores", (1,), (32,), [x.view(np.uint32), y])
    assert (y == x).all()
