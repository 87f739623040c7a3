"""Device functions around the tensor cores: ldmatrix, stmatrix and mma.sync."""

from __future__ import annotations

from tileworkbench.compiler.emit.c_like.helpers import Helper
from tileworkbench.compiler.emit.cuda.features import LOAD, STORE
from tileworkbench.compiler.emit.cuda.functions import asm, function
from tileworkbench.compiler.ir.types import DType
from tileworkbench.compiler.machine.instructions import OPERAND_DTYPES, MatrixInstruction


def _load_matrix(count: int, transpose: bool) -> str:
    """ldmatrix: "Warp-level matrix load instruction"."""
    suffix = "_trans" if transpose else ""
    registers = ", ".join(f"%{i}" for i in range(count))
    outputs = ", ".join(f'"=r"(r[{i}])' for i in range(count))
    trans = ".trans" if transpose else ""
    text = f"ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{registers}}}, [%{count}];"
    body = asm(text, outputs, '"r"(row)', "memory")
    return function(f"void ldmatrix_x{count}{suffix}(unsigned* r, unsigned row)", body)


def _store_matrix(count: int, transpose: bool) -> str:
    """stmatrix: "Warp-level matrix store instruction"."""
    suffix = "_trans" if transpose else ""
    registers = ", ".join(f"%{i + 1}" for i in range(count))
    inputs = ", ".join(['"r"(row)', *(f'"r"(r[{i}])' for i in range(count))])
    trans = ".trans" if transpose else ""
    text = f"stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [%0], {{{registers}}};"
    body = asm(text, "", inputs, "memory")
    return function(f"void stmatrix_x{count}{suffix}(unsigned row, const unsigned* r)", body)


MATRICES: dict[str, Helper] = {
    f"{name}_x{count}{'_trans' if transpose else ''}": Helper(made(count, transpose), (), feature)
    for name, made, feature in (
        ("ldmatrix", _load_matrix, LOAD),
        ("stmatrix", _store_matrix, STORE),
    )
    for count in (1, 2, 4)
    for transpose in (False, True)
}

# Four bytes that are `step` apart: those at even and odd places have the first two steps in common,
# and a compiler takes them once.
_PICK = """  if (step == 2) return __byte_perm(w[i / 4], w[i / 4 + 1], i & 1 ? 0x7531u : 0x6420u);
  const unsigned pair = i & 2 ? 0x7362u : 0x5140u;
  const unsigned low = __byte_perm(w[i / 4], w[(i + step) / 4], pair);
  const unsigned high = __byte_perm(w[(i + 2 * step) / 4], w[(i + 3 * step) / 4], pair);
  return __byte_perm(low, high, i & 1 ? 0x7632u : 0x5410u);"""
MATRICES["pick8"] = Helper(function("unsigned pick8(const unsigned* w, int i, int step)", _PICK))

# How PTX, a constraint and C++ spell the dtypes of accumulators.
_ACCUMULATORS = {
    "float16": ("f16", "r", "unsigned"),
    "float32": ("f32", "f", "float"),
    "float64": ("f64", "d", "double"),
    "int32": ("s32", "r", "int"),
}


def mma_helper(row: MatrixInstruction) -> tuple[str, Helper]:
    """mma.sync: "Warp-level matrix multiply-and-accumulate". `c` is updated in place. Of several
    across each has the next registers of B, and takes turns with the others in those of C.
    """
    (a, b, c), m, n, k = row.dtypes, row.m, row.n // row.across, row.k
    ta, tb = OPERAND_DTYPES[a], OPERAND_DTYPES[b]
    tc, constraint, c_type = _ACCUMULATORS[c]
    kinds = f"{ta}{'' if ta == tb else f'_{tb}'}{'_f16' if tc == 'f16' else ''}"
    name = f"mma_m{m}n{row.n}k{k}_{kinds}"
    letter, operand = ("d", "double") if ta == "f64" else ("r", "unsigned")
    bits = DType(a).bits
    per = 32 * max(32, bits)  # bits of an operand in one register of every lane
    counts = (m * n // (64 if tc == "f16" else 32), m * k * bits // per, n * k * bits // per)
    at = iter(range(64))
    c_names, a_names, b_names = (", ".join(f"%{next(at)}" for _ in range(n)) for n in counts)
    text = (
        f"mma.sync.aligned.m{m}n{n}k{k}.row.col.{tc}.{ta}.{tb}.{tc} "
        f"{{{c_names}}}, {{{a_names}}}, {{{b_names}}}, {{{c_names}}};"
    )
    lines = []
    for column in range(row.across):
        places = (i * row.across + column for i in range(counts[0]))
        outputs = ", ".join(f'"+{constraint}"(c[{place}])' for place in places)
        inputs = [f'"{letter}"(a[{i}])' for i in range(counts[1])]
        inputs += [f'"{letter}"(b[{column * counts[2] + i}])' for i in range(counts[2])]
        registers = f": {outputs}\n               : {', '.join(inputs)}"
        lines.append(f'  asm volatile("{text}"\n               {registers});')
    signature = f"void {name}({c_type}* c, const {operand}* a, const {operand}* b)"
    return name, Helper(function(signature, "\n".join(lines)))
