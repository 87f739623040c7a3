"""The counts of the GPU model are those of cubins. Nothing is timed, and no GPU is needed."""

from __future__ import annotations

import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.bench.gpu_counts import WarpCounts, cubin_counts, flops_of, model_counts
from tileworkbench.bench.gpu_terms import cost_of
from tileworkbench.bench.gpu_work import blocks_of, merged
from tileworkbench.compiler.device.nvidia.sass import Loop, main_loop, whole
from tileworkbench.compiler.ir.build import binary, call, cast, const
from tileworkbench.compiler.ir.expr import Var
from tileworkbench.compiler.ir.types import FLOAT32
from tileworkbench.kernels import dequant_matmul, flash_attention, matmul, softmax

X, Y = Var("x", FLOAT32), Var("y", FLOAT32)


def both(made, arch: str, fast_math: bool = True) -> tuple[WarpCounts, WarpCounts]:
    kernel = tw.compile(made, target=f"cuda:{arch}", fast_math=fast_math)
    lowered = kernel.record.snapshots[-1].program
    model = model_counts(lowered, kernel.requests, fast_math)
    return model, cubin_counts(main_loop(kernel.sass) or whole(kernel.sass))


def product():
    return matmul(
        *(1024, 1024, 1024, T.float16), block_M=128, block_N=128, block_K=64, num_stages=3
    )


def attention(causal: bool = False):
    sizes = 1, 4, 1024, 1024, 128, T.float16
    return flash_attention(*sizes, causal=causal, block_M=128, block_N=128, threads=256)


@pytest.mark.covering(1)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(("make", "fast"), [(product, True), (attention, True), (attention, False)])
def test_a_step_has_the_instructions_of_the_cubin(make, fast: bool, arch: str) -> None:
    model, cubin = both(make(), arch, fast)
    assert model.flops == cubin.flops > 0
    for kind in ("global", "shuffle", "special", "arithmetic"):
        assert model.instructions[kind] == pytest.approx(cubin.instructions[kind]), kind
    # Beside copies through cp.async ptxas puts three loads of its own.
    extra = 3 if arch == "sm_80" else 0
    assert cubin.instructions["shared"] - model.instructions["shared"] == extra


def test_equal_loads_of_an_unrolled_loop_are_one() -> None:
    model, cubin = both(dequant_matmul(1024, 1024, 1024, "int4", block_M=128), "sm_90a")
    assert model == cubin and model.instructions["global"] > 0


def test_a_kernel_without_products_is_counted_whole() -> None:
    model, cubin = both(softmax(1024, 4096, T.float16), "sm_80")
    assert model.flops == cubin.flops == 0
    assert model.instructions["special"] == cubin.instructions["special"] == 33
    assert model.instructions["global"] == cubin.instructions["global"]
    assert model.instructions["arithmetic"] == pytest.approx(
        cubin.instructions["arithmetic"], rel=0.02
    )


def test_work_is_that_of_the_middle_of_the_grid() -> None:
    """Causal blocks have as many steps as their place; on average half of them, rounded up."""
    flops = []
    for causal in (False, True):
        kernel = tw.compile(attention(causal), target="cuda:sm_90a")
        (work,) = blocks_of(kernel.record.snapshots[-1].program.body)
        flops.append(sum(work.products.values()))
    assert flops[0] / 2 <= flops[1] <= 0.7 * flops[0]


def test_stores_are_never_merged() -> None:
    kernel = tw.compile(dequant_matmul(256, 256, 256, "int4", block_M=128), target="cuda:sm_90a")
    parts = {access.count.kind: merged(access) for access in kernel.requests}
    assert parts.pop("load") < 1 and set(parts.values()) == {1.0}


@pytest.mark.parametrize(
    ("name", "flops"),
    [
        ("HMMA.16816.F32", 4096.0),
        ("IMMA.16832.S8.S8", 8192.0),
        ("HGMMA.64x128x16.F32", 65536.0),
        ("QGMMA.64x8x32.F32.E4M3.E4M3", 8192.0),
        ("FFMA", 0.0),
    ],
)
def test_operations_of_a_matrix_instruction(name: str, flops: float) -> None:
    assert flops_of(name) == flops


def test_instructions_on_indices_are_not_counted() -> None:
    names = "LDGSTS.E.BYPASS.128", "LDGDEPBAR", "IMAD.WIDE", "SHFL.BFLY", "BAR.SYNC", "VOTE.ALL"
    found = cubin_counts(Loop(0, (*names, "F2FP.PACK_AB", "MUFU.EX2", "LDSM.16.M88.4")))
    assert found.instructions == {
        **{"shared": 1, "global": 1, "shuffle": 1, "special": 1, "arithmetic": 1}
    }


def test_fast_math_is_cheaper_and_rare_functions_are_known() -> None:
    for name in ("exp", "exp2", "tanh", "sqrt", "sigmoid"):
        exact, fast = (cost_of(call(name, X), flag) for flag in (False, True))
        assert exact is not None and fast is not None and fast.slots < exact.slots
    quotient, half = cost_of(binary("div", X, Y), False), binary("div", X, const(2.0, FLOAT32))
    assert quotient is not None and quotient.kind == "division"
    reciprocal = cost_of(half, False)
    assert reciprocal is None or reciprocal.kind == "arithmetic"


def test_one_instruction_makes_two_halves() -> None:
    packed, widened = cost_of(cast(X, "float16"), False), cost_of(cast(X, "int32"), False)
    assert packed is not None and widened is not None
    assert packed.others == 0.5 and widened.others == 1.0
