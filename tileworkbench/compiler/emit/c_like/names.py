"""Names of users that mean something else in the language or in the emitted text."""

from __future__ import annotations

import re

from tileworkbench.compiler.analysis.names import Names, ascii_name
from tileworkbench.compiler.emit.c_like.dialect import Dialect
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
# Functions that texts call and what they declare themselves.
_DECLARED = """
printf shared_memory grid_barrier warp_index
pow fmod fma fmax fmin fabs exp exp2 log log2 log10 log1p sqrt sin cos tan sinh cosh tanh atan erf
floor ceil trunc round rint
"""
_PATTERN = r"__\w*|v\d+|(stop|step|rows|words)_of_\w+|\w+_mod_\d+|table_\d+"


def renamed(program: Program, dialect: Dialect) -> dict[str, str]:
    """A new name for each tensor, variable or kernel whose name is reserved in the text."""
    used = {program.name, *(param.name for param in program.params)}
    used.update(symbol.name for symbol in program.symbols)
    for node in walk(program.body):
        if isinstance(node, Var | Buffer):
            used.add(node.name)
        used.update(var.name for var in bound_by(node))
    declared = {*_DECLARED.split(), *dialect.math.values(), *dialect.words}
    taken = {*_KEYWORDS.split(), *dialect.helpers, *declared, *(f"{each}f" for each in declared)}
    matches = re.compile(f"{_PATTERN}|{dialect.pattern}").fullmatch
    reserved = (name for name in used if not name.isascii() or name in taken or matches(name))
    names = Names(program)
    return {name: names.fresh(ascii_name(name)) for name in sorted(reserved)}
