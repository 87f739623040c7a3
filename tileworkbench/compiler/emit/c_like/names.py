"""Names of users that C++ or the emitted text has other uses for."""

from __future__ import annotations

import re

from tileworkbench.compiler.analysis.names import Names, ascii_name
from tileworkbench.compiler.emit.c_like.small_floats import small_float_helpers
from tileworkbench.compiler.emit.cuda.helpers import HELPERS
from tileworkbench.compiler.ir.expr import Buffer, Var
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import bound_by, walk

# Words of C++ (ISO C++20, section "Keywords" and the alternative tokens) that Python lets one use.
_KEYWORDS = """
alignas alignof and_eq asm auto bitand bitor bool case catch char char8_t char16_t char32_t compl
concept const consteval constexpr constinit const_cast co_await co_return co_yield decltype default
delete do double dynamic_cast enum explicit export extern false float friend goto inline int long
mutable namespace new noexcept not_eq nullptr operator or_eq private protected public register
reinterpret_cast requires short signed sizeof static static_assert static_cast struct switch
template this thread_local throw true typedef typeid typename union unsigned using virtual void
volatile wchar_t xor xor_eq
"""
# What NVRTC declares without a header, and what the text itself declares.
_DECLARED = """
threadIdx blockIdx blockDim gridDim warpSize printf shared_memory grid_barrier
pow fmod fma fmax fmin fabs exp exp2 exp10 log log2 log10 log1p sqrt rsqrt sin cos tan sinh cosh
tanh atan erf floor ceil trunc round rint
"""
_PATTERN = re.compile(
    r"__\w*|v\d+|(stop|step)_of_\w+|table_\d+|(mma|cp_async|atomic|(global|shared)_add|lanes|make)_\w+|atomic[A-Z]\w*"
    r"|(u?(char|short|int|long|longlong)|float|double)[1-4]"
)
_RESERVED = frozenset(
    {*_KEYWORDS.split(), *_DECLARED.split(), *HELPERS, *small_float_helpers()}
    | {f"{name}f" for name in _DECLARED.split()}
)


def is_reserved(name: str) -> bool:
    """Whether a tensor, a variable or a kernel cannot have this name in CUDA C++."""
    return not name.isascii() or name in _RESERVED or _PATTERN.fullmatch(name) is not None


def renamed(program: Program) -> dict[str, str]:
    """For each name of the program that is reserved, one that is not and that nothing else has."""
    used = {program.name, *(param.name for param in program.params)}
    used.update(symbol.name for symbol in program.symbols)
    for found in walk(program.body):
        if isinstance(found, Var | Buffer):
            used.add(found.name)
        used.update(var.name for var in bound_by(found))
    names = Names(program)
    return {name: names.fresh(ascii_name(name)) for name in sorted(used) if is_reserved(name)}
