"""Who multiplies 16-bit floats faster, by what a processor has."""

import pytest

from tileworkbench.bench.products import product_rates


@pytest.mark.parametrize(
    ("features", "dtype", "kernel"),
    [
        ((), "bfloat16", True),
        (("avx512f", "avx512bw"), "bfloat16", True),
        (("avx512f", "avx512bf16"), "bfloat16", False),
        (("avx512bf16", "amx-bf16", "amx-tile"), "bfloat16", False),
        (("avx512bf16", "amx-bf16", "amx-tile"), "float16", True),
        (("avx512fp16",), "float16", False),
        (("neon", "bf16", "fullfp16"), "bfloat16", False),
        (("neon", "bf16", "fullfp16"), "float16", False),
    ],
)
def test_kernels_where_the_processor_has_no_instruction(
    features: tuple[str, ...], dtype: str, kernel: bool
) -> None:
    rates = product_rates(dtype, features)
    assert rates.kernel_is_faster == kernel
    assert rates.has_instructions == (not kernel)
    assert rates.is_close == (kernel or (dtype == "bfloat16" and "amx-bf16" not in features))


def test_this_processor() -> None:
    assert product_rates("float32").library == 1.0
    assert product_rates("bfloat16").kernel > 0
