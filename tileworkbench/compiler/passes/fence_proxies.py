"""Put a fence wherever an engine reads shared memory that threads have written.

Tensor cores and the copy engine reach shared memory on a way of their own. Where threads fill a
tile themselves, they fence what they wrote before they meet. What the copy engine brought needs no
fence. `schedule/proxies.py` finds the places.

Before::

    T.wait_group(pending=0)
    with T.started("wgmma"):
        ...

After::

    T.wait_group(pending=0)
    T.fence(kind="async")
    with T.started("wgmma"):
        ...
"""

from __future__ import annotations

from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import statements, with_body
from tileworkbench.compiler.ir.simt import Fence, Start
from tileworkbench.compiler.ir.stmt import Kernel, Seq, Stmt, seq
from tileworkbench.compiler.schedule.proxies import ProxyFences


def fence_proxies(program: Program) -> Program:
    """Place the fences between the accesses of threads and those of engines."""
    needed: set[int] = set()
    for kernel in statements(program.body):
        if isinstance(kernel, Kernel):
            needed |= ProxyFences(kernel).needed
    if not needed:
        return program
    return with_body(program, _fenced(program.body, needed))


def _fenced(stmt: Stmt, needed: set[int]) -> Stmt:
    if isinstance(stmt, Start):
        return seq([Fence("async", site=stmt.site), stmt]) if id(stmt) in needed else stmt
    made = stmt.map_children(
        lambda child: _fenced(child, needed) if isinstance(child, Stmt) else child
    )
    return seq(made.stmts) if isinstance(made, Seq) and made is not stmt else made
