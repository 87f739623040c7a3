"""Programs from the text of the IR, planned and lowered for threads."""

from __future__ import annotations

from collections.abc import Iterable

from tileworkbench.compiler.ir.parser import parse
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.verify import verify
from tileworkbench.compiler.passes.infer_thread_layouts import InferThreadLayouts
from tileworkbench.compiler.passes.lower_to_threads import LowerToThreads
from tileworkbench.compiler.target import parse_target

HEAD = '@T.program(stage="tile"{symbols})\ndef kernel(\n{params}):\n'


def program(
    params: list[str],
    body: str,
    threads: int = 128,
    grid: str = "1",
    symbols: Iterable[str] | None = None,
) -> Program:
    """One launch of blocks `bx` with the thread index `tx`; `body` is the text inside it."""
    known = ", ".join(f'"{name}": "int32"' for name in symbols or ())
    text = HEAD.format(
        symbols=f", symbols={{{known}}}" if known else "",
        params="".join(f"    {param},\n" for param in params),
    )
    text += f'    with T.Kernel({grid}, threads={threads}, thread_vars=["tx"]) as bx:\n'
    lines = [line for line in body.strip("\n").splitlines()]
    indent = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    text += "".join(f"        {line[indent:]}\n" for line in lines)
    found = parse(text)
    verify(found)
    return found


def plan(found: Program, target: str = "cuda:sm_80") -> Program:
    """`found` with layouts."""
    planned = InferThreadLayouts(parse_target(target))(found)
    verify(planned)
    return planned


def lowered(found: Program, target: str = "cuda:sm_80") -> Program:
    """`found` as code of threads."""
    made = LowerToThreads(parse_target(target))(plan(found, target))
    verify(made)
    return made
