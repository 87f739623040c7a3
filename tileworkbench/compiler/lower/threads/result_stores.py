"""Results of products that threads store to global memory: whether a tile in shared memory makes it
cheaper where no engine stores tiles.

Global memory is written in sectors of 32 bytes. Of a result of 16 bits, lanes of a matrix
instruction hold 16 bytes of a row at once, half a sector, so each sector is written twice. Through
a tile each thread stores 16 bytes, and neighbours those behind them.
"""

from __future__ import annotations

from functools import lru_cache

from tileworkbench.compiler.diagnostics import TileValueError
from tileworkbench.compiler.ir.tile import Copy, Gemm
from tileworkbench.compiler.layout.fragment import Fragment
from tileworkbench.compiler.lower.threads.context import ThreadContext
from tileworkbench.compiler.lower.threads.gemm import plan_of
from tileworkbench.compiler.lower.threads.inference import LayoutMap
from tileworkbench.compiler.lower.threads.nests import nest_of
from tileworkbench.compiler.lower.threads.plan import plan_vector
from tileworkbench.compiler.lower.threads.registers import register_map
from tileworkbench.compiler.lower.threads.tensor_copies import Unsuitable
from tileworkbench.compiler.machine.machine import SECTOR_BYTES, VECTOR_BITS


def bytes_at_once(product: Gemm, bits: int, context: ThreadContext) -> int:
    """How many bytes of a row of its result, in elements of `bits` bits, one store of a warp has.

    Raises `Unsuitable` where no matrix instruction multiplies, for then no layout is given.
    """
    try:
        plan = plan_of(product, context)
    except TileValueError:  # lowering will say so, with the place
        plan = None
    if plan is None:
        raise Unsuitable("no matrix instruction gives its layout")
    return _bytes_of_row(plan.instruction.c.fragment, bits)


@lru_cache(maxsize=64)
def _bytes_of_row(result: Fragment, bits: int) -> int:
    registers = register_map(result)
    first = registers.lanes.evaluate(0)[0]
    rows = [registers.lanes.evaluate(lane)[0] for lane in range(result.threads)]
    return rows.count(first) * min(registers.run, VECTOR_BITS // bits) * bits // 8


def check_stores(store: Copy, product: Gemm, context: ThreadContext) -> None:
    """Raises `Unsuitable` where `store`, from a tile that the result of `product` lies in, is not
    cheaper than one from registers.
    """
    tensor = store.dst.buffer
    filled = bytes_at_once(product, tensor.dtype.bits, context)
    if filled >= SECTOR_BYTES:
        raise Unsuitable(f"a warp stores {filled} bytes of a row at once, which are whole sectors")
    _, lanes = plan_vector(nest_of(store, context), LayoutMap({}), context)
    if lanes * tensor.dtype.bits < VECTOR_BITS:
        width = lanes * tensor.dtype.bits // 8
        raise Unsuitable(f"rows of '{tensor.name}' are not known to allow more than {width} bytes")
