"""Device functions around the tensor cores: ldmatrix, stmatrix and mma.sync."""

from __future__ import annotations

from tileworkbench.compiler.emit.c_like.helpers import Helper
from tileworkbench.compiler.emit.cuda.features import LOAD, STORE
from tileworkbench.compiler.emit.cuda.functions import asm, function
from tileworkbench.compiler.ir.types import DType
from tileworkbench.compiler.machine.instructions import OPERAND_DTYPES


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

# How PTX, a constraint and C++ spell the dtypes of accumulators.
_ACCUMULATORS = {
    "float16": ("f16", "r", "unsigned"),
    "float32": ("f32", "f", "float"),
    "float64": ("f64", "d", "double"),
    "int32": ("s32", "r", "int"),
}


def mma_helper(m: int, n: int, k: int, a: str, b: str, c: str) -> tuple[str, Helper]:
    """mma.sync: "Warp-level matrix multiply-and-accumulate". `c` is updated in place."""
    ta, tb = OPERAND_DTYPES[a], OPERAND_DTYPES[b]
    tc, constraint, c_type = _ACCUMULATORS[c]
    name = f"mma_m{m}n{n}k{k}_{ta}{'' if ta == tb else f'_{tb}'}{'_f16' if tc == 'f16' else ''}"
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
    outputs = ", ".join(f'"+{constraint}"(c[{i}])' for i in range(counts[0]))
    inputs = ", ".join(
        f'"{letter}"({x}[{i}])'
        for x, count in zip("ab", counts[1:], strict=True)
        for i in range(count)
    )
    signature = f"void {name}({c_type}* c, const {operand}* a, const {operand}* b)"
    body = f'  asm volatile("{text}"\n               : {outputs}\n               : {inputs});'
    return name, Helper(function(signature, body))
