"""From an instruction to what it does: the table of opcodes."""

from __future__ import annotations

import numpy as np

from tileworkbench.compiler.sim.ptx import (
    arithmetic,
    bits,
    control,
    conversion,
    copies,
    floats,
    loads,
    matrix,
    registers,
    selection,
    warp,
    wgmma,
)
from tileworkbench.compiler.sim.ptx.errors import unsupported
from tileworkbench.compiler.sim.ptx.execute import Control, Release
from tileworkbench.compiler.sim.ptx.external import EXTERNAL
from tileworkbench.compiler.sim.ptx.floats import FLOATS
from tileworkbench.compiler.sim.ptx.module import Instruction, Negated, Operand, Symbol
from tileworkbench.compiler.sim.ptx.operands import Decoder, DecodeStep
from tileworkbench.compiler.sim.ptx.state import State, Step

# Opcodes that mean one thing for floats and another for integers, told apart by the last modifier.
_TYPED: dict[str, tuple[DecodeStep, DecodeStep]] = {
    "add": (floats.decode_add, arithmetic.decode_add),
    "sub": (floats.decode_add, arithmetic.decode_add),
    "mul": (floats.decode_mul, arithmetic.decode_mul),
    "mad": (floats.decode_fma, arithmetic.decode_mad),
    "div": (floats.decode_div, arithmetic.decode_div),
    "min": (floats.decode_min, arithmetic.decode_min),
    "max": (floats.decode_min, arithmetic.decode_min),
    "abs": (floats.decode_abs, arithmetic.decode_abs),
    "neg": (floats.decode_abs, arithmetic.decode_abs),
}

_PLAIN: dict[str, DecodeStep] = {
    **dict.fromkeys(("addc", "subc"), arithmetic.decode_add),
    "madc": arithmetic.decode_mad,
    **dict.fromkeys(("mul24", "mad24"), arithmetic.decode_mul24),
    **{"rem": arithmetic.decode_div, "sad": arithmetic.decode_sad},
    **dict.fromkeys(("and", "or", "xor", "not"), arithmetic.decode_logic),
    **{"cnot": arithmetic.decode_cnot, "lop3": arithmetic.decode_lop3},
    **dict.fromkeys(("shl", "shr"), arithmetic.decode_shift),
    **{"shf": arithmetic.decode_funnel, "bfe": arithmetic.decode_bfe, "bfi": arithmetic.decode_bfi},
    **{"prmt": arithmetic.decode_prmt, "popc": bits.decode_popc},
    **{"clz": bits.decode_clz, "bfind": bits.decode_bfind},
    "brev": bits.decode_brev,
    **dict.fromkeys(("dp4a", "dp2a"), arithmetic.decode_dp4a),
    **{"setp": selection.decode_setp, "set": selection.decode_set},
    **{"selp": selection.decode_selp, "slct": selection.decode_slct},
    **{"fma": floats.decode_fma, "copysign": floats.decode_copysign, "testp": floats.decode_testp},
    **dict.fromkeys(
        ("rcp", "sqrt", "rsqrt", "sin", "cos", "lg2", "ex2", "tanh"), floats.decode_unary
    ),
    **{"mov": conversion.decode_mov, "cvt": conversion.decode_cvt, "cvta": conversion.decode_cvta},
    "isspacep": conversion.decode_isspacep,
    **dict.fromkeys(("ld", "ldu"), loads.decode_ld),
    "st": loads.decode_st,
    **dict.fromkeys(("atom", "red"), loads.decode_atom),
    **dict.fromkeys(
        ("membar", "prefetch", "prefetchu", "nanosleep", "discard"),
        loads.decode_nothing,
    ),
    **dict.fromkeys(("griddepcontrol", "applypriority", "pmevent"), loads.decode_nothing),
    "activemask": warp.decode_activemask,
    "createpolicy": conversion.decode_policy,
    "cp": copies.decode_cp,
    "fence": copies.decode_fence,
    **{"mbarrier": copies.decode_mbarrier, "mapa": copies.decode_mapa},
}

# Instructions that the lanes of a warp execute together; the second item says that the last operand
# is a mask of the lanes that take part.
_WARP: dict[str, tuple[DecodeStep, bool]] = {
    **{"shfl": (warp.decode_shfl, True), "vote": (warp.decode_vote, True)},
    **{"match": (warp.decode_match, True), "redux": (warp.decode_redux, True)},
    "elect": (warp.decode_elect, True),
    **{"mma": (matrix.decode_mma, False), "ldmatrix": (matrix.decode_ldmatrix, False)},
    "wgmma": (wgmma.decode_wgmma, False),
    **{"stmatrix": (matrix.decode_stmatrix, False), "movmatrix": (matrix.decode_movmatrix, False)},
}

Decoded = tuple[Step | None, Control | None, Release | None]


def decode(i: Instruction, d: Decoder, calls: dict[int, control.Call], place: int) -> Decoded:
    """What an instruction does: a step, or a control with what it gives when it lets lanes go."""
    d.instruction = i
    opcode = i.opcode
    if opcode in ("bar", "barrier") and not i.has("warp", "cluster"):
        barrier, release = control.decode_barrier(i, d)
        return None, barrier, release
    flow = _decode_control(i, d, calls, place)
    if flow is not None:
        return None, flow, None
    if opcode in _TYPED:
        as_float, as_integer = _TYPED[opcode]
        step = (as_float if i.modifiers[-1] in FLOATS else as_integer)(i, d)
    elif opcode == "barrier":
        step = copies.decode_cluster_arrive(i, d)
    elif opcode in _PLAIN:
        step = _PLAIN[opcode](i, d)
    elif opcode == "call" and isinstance(i.operands[1], Symbol):
        step = EXTERNAL[i.operands[1].name](i, d)
    else:
        raise unsupported(i)
    return _guarded(i, d, step), None, None


def _decode_control(
    i: Instruction, d: Decoder, calls: dict[int, control.Call], place: int
) -> Control | None:
    opcode = i.opcode
    if opcode in _WARP:
        decoder, has_mask = _WARP[opcode]
        member: Operand | None = i.operands[-1] if has_mask else None
        return control.decode_warp(i, d, decoder(i, d), member)
    if opcode in ("bar", "barrier"):
        if i.has("cluster"):
            return copies.decode_cluster_wait(i, d) if i.has("wait") else None
        return control.decode_warp(i, d, control.warp_barrier(i, d), i.operands[0])
    if opcode == "mbarrier" and i.has("try_wait"):
        return copies.decode_try_wait(i, d)
    if opcode == "setmaxnreg":
        return registers.decode_setmaxnreg(i, d)
    if opcode == "bra":
        return control.decode_bra(i, d)
    if opcode == "brx":
        return control.decode_brx(i, d)
    if opcode == "ret":
        return control.decode_ret(i, d, calls)
    if opcode == "exit":
        return control.decode_exit(i, d)
    if opcode in ("trap", "brkpt"):
        return control.decode_trap(i, d)
    if opcode == "call":
        return _decode_call(i, d, calls, place)
    return None


def _decode_call(
    i: Instruction, d: Decoder, calls: dict[int, control.Call], place: int
) -> Control | None:
    target = i.operands[1]
    if not isinstance(target, Symbol):
        raise unsupported(i, "an indirect call")
    function = d.module.functions.get(target.name)
    if function is not None:
        calls[place] = control.Call(i, d, function)
        return control.decode_call(i, d, calls[place])
    if target.name in EXTERNAL:
        return None  # no code of the module's: one step
    raise unsupported(i, f"'{target.name}' is not defined in the module")


def _guarded(i: Instruction, d: Decoder, step: Step) -> Step:
    """A step that acts on the lanes whose guard holds."""
    if i.guard is None:
        return step
    guard = d.read(Negated(i.guard) if i.guard_negated else i.guard, "pred")

    def run(state: State) -> None:
        mask, full = state.mask, state.full
        chosen = mask & guard(state)
        count = np.count_nonzero(chosen)
        if not count:
            return
        state.activate(chosen, full and bool((chosen == mask).all()))
        step(state)
        state.activate(mask, full)

    return run
