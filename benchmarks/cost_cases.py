"""Kernels with the configurations that `cost_model.py` predicts and measures on this processor."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cost_blind_kernels import (
    column_ranges,
    counts,
    dilated,
    gated_update,
    gram_matrices,
    kernel_sums,
    relu_linear,
    row_statistics,
)
from cost_fresh_kernels import batch_norm, depthwise, first_largest, max_pool, residual_swish
from cost_fresh_products import experts, group_bytes, mlp, nearest, window
from cost_further_kernels import (
    column_moments,
    edges,
    mixed,
    outer_softplus,
    plane_means,
    scaled_product,
    scores,
    weighted_norms,
)
from cost_held_out_kernels import (
    batched_products,
    causal_convolution,
    column_variance,
    gated_product,
    group_norm,
    half_softmax,
    huber,
    longest_paths,
)
from cost_kernels import (
    column_max,
    column_sums,
    layernorm_backward,
    log_softmax,
    log_sum_exp,
    normalise,
    softmax_backward,
)
from cost_later_kernels import (
    batched_gemv,
    entropies,
    moving_average,
    radial_kernel,
    scaled_bytes_product,
    sequence_convolution,
    soft_values,
    unit_columns,
)
from cost_new_kernels import (
    city_distances,
    cosines,
    decaying_sums,
    downsample,
    embed,
    masked_error,
    polynomial,
    quantise,
    rank_one,
)
from cost_tuned_kernels import (
    bags,
    channels_last,
    column_errors,
    entropy_backward,
    modulated,
    selective_scan,
    wave,
)
from cost_tuned_products import (
    biased_attention,
    code_book,
    linear_norm,
    patches,
    pointwise_backward,
)
from cost_unseen_kernels import (
    biased_silu,
    box_filter,
    column_softmax,
    divergences,
    gram_product,
    low_rank,
    middle_max,
    thin_update,
)
from cost_user_kernels import (
    dequantise,
    distances,
    gated,
    moments,
    row_range,
    running_sums,
    stencil,
    transpose,
    weighted_columns,
)

from tileworkbench import kernels

ROWS = (1, 2, 4, 8, 16, 32)
TILES = (8, 16, 64, 256)
ELEMENTS = {"block_M": (1, 8, 64), "block_N": (16, 64, 256, 1024)}
PIECES = {"block_M": (1, 4, 16), "block_N": (128, 512, 2048, 8192)}  # of rows


@dataclass(frozen=True)
class Case:
    """A kernel with what stays and what is varied."""

    name: str
    make: Callable[..., Any]
    constants: Mapping[str, Any]
    axes: Mapping[str, tuple[Any, ...]]

    @property
    def configurations(self) -> list[dict[str, Any]]:
        """All configurations."""
        tiles = itertools.product(*self.axes.values())
        return [dict(zip(self.axes, each, strict=True)) for each in tiles]

    @property
    def middle(self) -> dict[str, Any]:
        """The configuration in the middle of all."""
        return self.configurations[len(self.configurations) // 2]

    def label(self, config: Mapping[str, Any]) -> str:
        """The kernel with a configuration."""
        return f"{self.name}, {text_of(config)}"


def text_of(config: Mapping[str, Any]) -> str:
    """A configuration in a table."""
    return " ".join(f"{axis}={size}" for axis, size in config.items())


# The model's constants were chosen with these in view.
SEEN = (
    Case(
        "matmul 512, float32",
        kernels.matmul,
        {"M": 512, "N": 512, "K": 512, "dtype": "float32"},
        {"block_M": (16, 32, 64, 128), "block_N": (16, 64, 128), "block_K": (16, 64)},
    ),
    Case(
        "softmax 2048x1024",
        kernels.softmax,
        {"M": 2048, "N": 1024},
        {"block_M": ROWS},
    ),
    Case(
        "layernorm 1024x1536",
        kernels.layernorm,
        {"M": 1024, "N": 1536},
        {"block_M": ROWS},
    ),
    Case(
        "add 1024x1024",
        kernels.add,
        {"M": 1024, "N": 1024},
        {"block_M": (1, *TILES), "block_N": (16, 64, 256, 1024)},
    ),
    Case(
        "online softmax 512x8192",
        kernels.online_softmax,
        {"M": 512, "N": 8192},
        PIECES,
    ),
    Case(
        "cross entropy 256x16384",
        kernels.cross_entropy,
        {"M": 256, "N": 16384},
        PIECES,
    ),
    Case(
        "column sums 2048x1024",
        column_sums,
        {"M": 2048, "N": 1024},
        {"block_M": (1, 8, 64, 256), "block_N": (16, 64, 256, 512)},
    ),
    Case(
        "rope 1x512x8x64",
        kernels.rope,
        {"batch": 1, "seq_len": 512, "heads": 8, "dim": 64},
        {"block_S": (1, 2, 8, 32, 128), "interleaved": (False, True)},
    ),
    Case(
        "add_rmsnorm 1024x2048",
        kernels.add_rmsnorm,
        {"M": 1024, "N": 2048},
        {"block_M": ROWS},
    ),
    Case(
        "log_softmax 1024x1280",
        log_softmax,
        {"M": 1024, "N": 1280},
        {"block_M": ROWS},
    ),
    Case(
        "layernorm backward 2048x512",
        layernorm_backward,
        {"M": 2048, "N": 512},
        {"block_M": (*ROWS, 64)},
    ),
    Case(
        "gemv 2048x2048",
        kernels.gemv,
        {"N": 2048, "K": 2048},
        {"block_N": (1, 4, 16), "block_K": (16, 64, 256, 1024)},
    ),
    Case(
        "matmul 384x768x256, bfloat16",
        kernels.matmul,
        {"M": 384, "N": 768, "K": 256, "dtype": "bfloat16"},
        {"block_M": (16, 32, 64, 128), "block_N": (32, 64, 128), "block_K": (32, 64)},
    ),
    Case(
        "flash attention 512, D 64",
        kernels.flash_attention,
        {"batch": 1, "heads": 4, "seq_q": 512, "seq_kv": 512, "dim": 64},
        {"block_M": (16, 32, 64, 128), "block_N": (16, 32, 64, 128)},
    ),
    Case(
        "int4 matmul 64x512x1024",
        kernels.dequant_matmul,
        {"M": 64, "N": 512, "K": 1024, "dtype": "float32"},
        {"block_M": (16, 32, 64), "block_N": (32, 64, 128), "block_K": (32, 64, 128)},
    ),
    Case(
        "rmsnorm 2048x768",
        kernels.rmsnorm,
        {"M": 2048, "N": 768},
        {"block_M": ROWS},
    ),
    Case(
        "gelu 1024x512",
        kernels.gelu,
        {"M": 1024, "N": 512},
        {"block_M": (1, 4, 64), "block_N": (4, 16, 64, 512)},
    ),
    Case(
        "linear 256x512x768",
        kernels.linear,
        {"M": 256, "N": 512, "K": 768},
        {"block_M": (16, 32, 64, 128), "block_N": (32, 64, 128), "block_K": (32, 64)},
    ),
    Case(
        "add_layernorm 1024x1024", kernels.add_layernorm, {"M": 1024, "N": 1024}, {"block_M": ROWS}
    ),
    Case(
        "rmsnorm backward 1024x1024",
        kernels.rmsnorm_backward,
        {"M": 1024, "N": 1024},
        {"block_M": (8, 32, 128), "block_N": (16, 256, 1024)},
    ),
    Case(
        "split-k matmul 64x256x4096",
        kernels.split_k_matmul,
        {"M": 64, "N": 256, "K": 4096},
        {"block_M": (16, 32, 64), "block_N": (32, 64, 128), "splits": (2, 8)},
    ),
    Case(
        "softmax backward 1024x1024",
        softmax_backward,
        {"M": 1024, "N": 1024},
        {"block_M": ROWS},
    ),
    Case(
        "log_sum_exp 512x8192",
        log_sum_exp,
        {"M": 512, "N": 8192},
        PIECES,
    ),
    Case(
        "column max 1024x2048",
        column_max,
        {"M": 1024, "N": 2048},
        {"block_M": (1, 8, 64, 256), "block_N": (16, 64, 256, 512)},
    ),
    Case(
        "normalise 512x8192",
        normalise,
        {"M": 512, "N": 8192},
        PIECES,
    ),
    Case(
        "layernorm backward with weights 1024x1024",
        kernels.layernorm_backward,
        {"M": 1024, "N": 1024},
        {"block_M": (8, 32, 128), "block_N": (16, 256, 1024)},
    ),
    Case(
        "int4 gemv 2048x2048",
        kernels.dequant_gemv,
        {"N": 2048, "K": 2048, "dtype": "float32"},
        {"block_N": (1, 4, 16), "block_K": (32, 128, 512)},
    ),
    Case(
        "convolution 28x28, 64 to 64",
        kernels.convolution,
        {"batch": 1, "height": 28, "width": 28, "channels": 64, "filters": 64, "pad": 1},
        {"block_M": (16, 32, 64, 128), "block_N": (16, 32, 64), "block_K": (32, 64)},
    ),
    # Held out until scans, short loops and waits were mended with them in view.
    Case(
        "transpose 1024x1024",
        transpose,
        {"M": 1024, "N": 1024},
        {"block_M": (8, 32, 128), "block_N": (8, 32, 128)},
    ),
    Case(
        "five-point stencil 1024x1024",
        stencil,
        {"M": 1024, "N": 1024},
        ELEMENTS,
    ),
    Case("running sums 1024x1024", running_sums, {"M": 1024, "N": 1024}, {"block_M": ROWS}),
    Case(
        "swiglu 1024x1024",
        gated,
        {"M": 1024, "N": 1024},
        ELEMENTS,
    ),
    Case(
        "two moments 512x8192",
        moments,
        {"M": 512, "N": 8192},
        PIECES,
    ),
    Case(
        "range of rows 512x8192",
        row_range,
        {"M": 512, "N": 8192},
        PIECES,
    ),
    Case(
        "weighted columns 1024x2048",
        weighted_columns,
        {"M": 1024, "N": 2048},
        {"block_M": (1, 8, 64, 256), "block_N": (16, 64, 256, 512)},
    ),
    Case(
        "int8 to float32 1024x2048",
        dequantise,
        {"M": 1024, "N": 2048},
        ELEMENTS,
    ),
    Case(
        "squared distances 256x512, K 128",
        distances,
        {"M": 256, "N": 512, "K": 128},
        {"block_M": (16, 32, 64), "block_N": (16, 32, 64)},
    ),
    # Held out until it showed that every other element was taken for a row elsewhere.
    Case("downsample 1024x1024", downsample, {"M": 1024, "N": 1024}, ELEMENTS),
    # Held out until rows that a block uses again, small blocks and short loops were mended.
    Case("rank-one update 1024x1024", rank_one, {"M": 1024, "N": 1024}, ELEMENTS),
    Case(
        "cosines of rows 512x4096",
        cosines,
        {"M": 512, "N": 4096},
        {"block_M": (1, 4, 16), "block_N": (64, 256, 1024, 4096)},
    ),
    Case("rows to int8 1024x2048", quantise, {"M": 1024, "N": 2048}, {"block_M": ROWS}),
    Case("polynomial 512x1024", polynomial, {"M": 512, "N": 1024}, ELEMENTS),
    Case(
        "city distances 128x512, K 64",
        city_distances,
        {"M": 128, "N": 512, "K": 64},
        {"block_M": (1, 4, 16, 64), "block_N": (16, 64, 256)},
    ),
    Case(
        "rows of a table 1024x1024",
        embed,
        {"M": 1024, "N": 1024, "words": 16},
        {"block_M": (1, 8, 64), "block_N": (16, 64, 256, 1024)},
    ),
    Case(
        "decaying sums 1024x1024",
        decaying_sums,
        {"M": 1024, "N": 1024},
        {"block_M": (1, 8, 64, 256), "block_N": (16, 64, 256, 512)},
    ),
    Case(
        "masked error of rows 512x4096",
        masked_error,
        {"M": 512, "N": 4096},
        {"block_M": (1, 4, 16), "block_N": (64, 256, 1024, 4096)},
    ),
    # Held out until it showed that blocks share rows.
    Case(
        "causal convolution 1024x1024",
        causal_convolution,
        {"M": 1024, "N": 1024},
        ELEMENTS,
    ),
    # Held out until the model was read off LLVM's code, for which their times were looked at.
    Case(
        "Huber's loss of rows 512x4096",
        huber,
        {"M": 512, "N": 4096},
        {"block_M": (1, 4, 16), "block_N": (64, 256, 1024, 4096)},
    ),
    Case(
        "32 products 64x96x64",
        batched_products,
        {"B": 32, "M": 64, "N": 96, "K": 64},
        {"block_M": (8, 16, 32, 64), "block_N": (16, 32, 96)},
    ),
    Case(
        "group norm 256x16x256",
        group_norm,
        {"M": 256, "G": 16, "D": 256},
        {"block_M": (*ROWS, 64)},
    ),
    Case(
        "variances of columns 1024x2048",
        column_variance,
        {"M": 1024, "N": 2048},
        {"block_M": (1, 8, 64, 256), "block_N": (16, 64, 256, 512)},
    ),
    Case(
        "longest paths 128x256, K 128",
        longest_paths,
        {"M": 128, "N": 256, "K": 128},
        {"block_M": (1, 4, 16, 64), "block_N": (16, 64, 256)},
    ),
    Case(
        "gated products 256x256x256",
        gated_product,
        {"M": 256, "N": 256, "K": 256},
        {"block_M": (16, 32, 64, 128), "block_N": (16, 32, 64, 128), "block_K": (32, 128)},
    ),
    Case(
        "softmax of bfloat16 1024x2048",
        half_softmax,
        {"M": 1024, "N": 2048},
        {"block_M": ROWS},
    ),
    # Held out until loops were matched with the tensors that they move.
    Case(
        "columns of length 1, 1024x1024",
        unit_columns,
        {"M": 1024, "N": 1024},
        {"block_M": (1, 8, 64, 256), "block_N": (16, 64, 256, 512)},
    ),
    Case(
        "16 matrices 256x1024 by vectors",
        batched_gemv,
        {"B": 16, "M": 256, "K": 1024},
        {"block_M": (1, 4, 16), "block_K": (16, 64, 256, 1024)},
    ),
    Case(
        "convolution of a sequence, 512x96 to 128",
        sequence_convolution,
        {"L": 512, "C": 96, "F": 128},
        {"block_L": (8, 16, 32, 64, 128), "block_F": (16, 32, 64, 128)},
    ),
    Case(
        "radial kernel 256x384, D 128",
        radial_kernel,
        {"M": 256, "N": 384, "D": 128},
        {"block_M": (16, 32, 64, 128), "block_N": (16, 64, 128), "block_D": (32, 128)},
    ),
    Case(
        "entropies of rows 256x8192",
        entropies,
        {"M": 256, "N": 8192},
        {"block_M": (1, 4, 16), "block_N": (64, 256, 1024, 4096)},
    ),
    Case(
        "moving average 512x1024",
        moving_average,
        {"M": 512, "N": 1024},
        {"block_M": (1, 4, 16, 64), "block_N": (16, 64, 256, 1024)},
    ),
    Case(
        "softmax times values 256x1024, D 64",
        soft_values,
        {"M": 256, "N": 1024, "D": 64},
        {"block_M": (8, 16, 32, 64, 128), "block_N": (16, 32, 64, 128)},
    ),
    Case(
        "int8 times float32 128x384x512",
        scaled_bytes_product,
        {"M": 128, "N": 384, "K": 512},
        {"block_M": (16, 32, 64), "block_N": (32, 64, 128), "block_K": (32, 64, 128)},
    ),
    Case(
        "divergences of rows 256x8192",
        divergences,
        {"M": 256, "N": 8192},
        {"block_M": (1, 4, 16), "block_N": (64, 256, 1024, 4096)},
    ),
    Case(
        "box filter 512x1024",
        box_filter,
        {"M": 512, "N": 1024},
        {"block_M": (1, 4, 16, 64), "block_N": (16, 64, 256, 1024)},
    ),
    Case(
        "softmax of columns 256x2048",
        column_softmax,
        {"M": 256, "N": 2048},
        {"block_N": (16, 32, 64, 128, 256, 512)},
    ),
    Case(
        "low rank 512x768x512, R 32",
        low_rank,
        {"M": 512, "N": 768, "K": 512, "R": 32},
        {"block_M": (8, 16, 32, 64, 128), "block_N": (32, 64, 128, 256)},
    ),
    Case(
        "A.T @ B 256x384x512, bfloat16",
        gram_product,
        {"M": 256, "N": 384, "K": 512},
        {"block_M": (16, 32, 64, 128), "block_N": (32, 64, 128), "block_K": (32, 128)},
    ),
    Case(
        "C + A @ B.T 1024x1024, K 16",
        thin_update,
        {"M": 1024, "N": 1024, "K": 16},
        {"block_M": (16, 32, 64, 128), "block_N": (16, 64, 128, 256)},
    ),
    Case(
        "maxima of the middle 64x64x512",
        middle_max,
        {"M": 64, "S": 64, "N": 512},
        {"block_S": (1, 4, 16, 64), "block_N": (16, 64, 256, 512)},
    ),
    Case(
        "silu of bfloat16 with a bias 1024x1024",
        biased_silu,
        {"M": 1024, "N": 1024},
        {"block_M": (1, 8, 64), "block_N": (16, 64, 256, 1024)},
    ),
    # Held out until it showed that lines of the last cache are fetched before they are stored to.
    Case(
        "edges of an image 512x1024",
        edges,
        {"M": 512, "N": 1024},
        {"block_M": (1, 4, 16, 64), "block_N": (16, 64, 256, 1024)},
    ),
    Case(
        "weighted norms of rows 512x4096",
        weighted_norms,
        {"M": 512, "N": 4096},
        {"block_M": (1, 4, 16), "block_N": (64, 256, 1024, 4096)},
    ),
    Case(
        "outer softplus 512x1024",
        outer_softplus,
        {"M": 512, "N": 1024},
        {"block_M": (1, 8, 64), "block_N": (16, 64, 256, 1024)},
    ),
    Case(
        "means and maxima of columns 1024x1024",
        column_moments,
        {"M": 1024, "N": 1024},
        {"block_M": (1, 8, 64, 256), "block_N": (16, 64, 256, 512)},
    ),
    Case(
        "mixed rows 1024x1024",
        mixed,
        {"M": 1024, "N": 1024},
        {"block_M": (1, 8, 64), "block_N": (16, 64, 256, 1024)},
    ),
    Case(
        "scaled product 192x384x512",
        scaled_product,
        {"M": 192, "N": 384, "K": 512},
        {"block_M": (16, 32, 64), "block_N": (32, 64, 128), "block_K": (32, 64, 128)},
    ),
    Case(
        "means of planes 256x64x64",
        plane_means,
        {"C": 256, "M": 64, "N": 64},
        {"block_M": (1, 4, 16, 64), "block_C": (1, 4, 16)},
    ),
    Case(
        "sigmoid of scores 384x512, D 96",
        scores,
        {"M": 384, "N": 512, "D": 96},
        {"block_M": (16, 32, 64, 128), "block_N": (16, 64, 128, 256)},
    ),
    # Held out until reductions were fused with what they read, and the rest of the model followed.
    Case(
        "relu and linear 256x384x512",
        relu_linear,
        {"M": 256, "N": 384, "K": 512},
        {"block_M": (16, 32, 64), "block_N": (32, 64, 128), "block_K": (32, 64, 128)},
    ),
    Case(
        "16 Gram matrices 128x128",
        gram_matrices,
        {"B": 16, "M": 128, "N": 128},
        {"block_M": (8, 16, 32, 64), "block_N": (16, 32, 64, 128)},
    ),
    Case(
        "kernel sums 512x4096",
        kernel_sums,
        {"M": 512, "N": 4096},
        {"block_M": (1, 4, 16), "block_N": (64, 256, 1024, 4096)},
    ),
    Case(
        "five taps apart 512x1024",
        dilated,
        {"M": 512, "N": 1024},
        {"block_M": (1, 4, 16, 64), "block_N": (16, 64, 256, 1024)},
    ),
    Case(
        "ranges of columns 1024x2048",
        column_ranges,
        {"M": 1024, "N": 2048},
        {"block_M": (1, 8, 64, 256), "block_N": (16, 64, 256, 512)},
    ),
    Case(
        "counts in rows 512x8192",
        counts,
        {"M": 512, "N": 8192},
        {"block_M": (1, 4, 16), "block_N": (64, 256, 1024, 4096)},
    ),
    Case("gated update of bfloat16 1024x1024", gated_update, {"M": 1024, "N": 1024}, ELEMENTS),
    Case(
        "statistics of rows 2048x768",
        row_statistics,
        {"M": 2048, "N": 768},
        {"block_M": (*ROWS, 64)},
    ),
    # Held out until rows whose pitch is no multiple of a page were told apart.
    Case(
        "experts 4x64x256x256, bfloat16",
        experts,
        {"E": 4, "M": 64, "N": 256, "K": 256},
        {"block_M": (16, 32, 64), "block_N": (32, 64, 128), "block_K": (32, 64, 128)},
    ),
    Case(
        "window of 128 of 512 keys, 4 heads, D 64",
        window,
        {"L": 512, "H": 4, "G": 2, "D": 64, "W": 128},
        {"block_M": (16, 32, 64, 128), "block_N": (16, 32, 64, 128)},
    ),
    Case(
        "two layers 256x128x512x128",
        mlp,
        {"M": 256, "K": 128, "H": 512, "N": 128},
        {"block_M": (8, 16, 32, 64, 128), "block_H": (16, 32, 64, 128)},
    ),
    Case(
        "int8 weights in groups 64x512x768",
        group_bytes,
        {"M": 64, "N": 512, "K": 768, "G": 128},
        {"block_M": (16, 32, 64), "block_N": (32, 64, 128), "block_K": (32, 64, 128)},
    ),
    Case(
        "nearest of 384 rows 512x96",
        nearest,
        {"M": 512, "N": 384, "K": 96},
        {"block_M": (8, 16, 32, 64, 128), "block_N": (16, 32, 64, 128)},
    ),
    Case(
        "depthwise convolution 56x56x128",
        depthwise,
        {"H": 56, "W": 56, "C": 128},
        {"block_H": (1, 4), "block_W": (2, 8, 28), "block_C": (16, 64, 128)},
    ),
    Case(
        "batch norm 1024x768",
        batch_norm,
        {"M": 1024, "N": 768},
        {"block_M": (1, 8, 64, 256), "block_N": (16, 64, 256)},
    ),
    Case(
        "maxima of 3x3 with stride 2, 64x56x56",
        max_pool,
        {"C": 64, "H": 56, "W": 56},
        {"block_H": (1, 2, 8, 28, 56), "block_W": (8, 28, 56)},
    ),
    Case(
        "places of maxima of rows 512x4096",
        first_largest,
        {"M": 512, "N": 4096},
        {"block_M": (1, 4, 16), "block_N": (64, 256, 1024, 4096)},
    ),
    Case("residual hardswish 1024x1024", residual_swish, {"M": 1024, "N": 1024}, ELEMENTS),
)

# Said before any of them was measured or predicted; the sizes of tiles go from the smallest that
# one would try to the whole extent.
HELD_OUT = (
    Case(
        "attention with a bias 2x320x640, D 48, bfloat16",
        biased_attention,
        {"H": 2, "L": 320, "S": 640, "D": 48},
        {"block_M": (1, 8, 32, 80, 320), "block_N": (8, 32, 128, 640)},
    ),
    Case(
        "patches of 16x16x3, 14x14 to 192",
        patches,
        {"S": 14, "P": 16, "C": 3, "N": 192},
        {"block_M": (1, 8, 49, 196), "block_N": (8, 48, 192), "block_K": (16, 96, 768)},
    ),
    Case(
        "backward 1x1 convolution 4x96x144x784",
        pointwise_backward,
        {"B": 4, "C": 96, "F": 144, "P": 784},
        {"block_C": (1, 8, 32, 96), "block_P": (16, 112, 784), "block_F": (8, 48, 144)},
    ),
    Case(
        "codes of 4 bits 48x640x960",
        code_book,
        {"M": 48, "N": 640, "K": 960, "G": 64},
        {"block_M": (1, 8, 48), "block_N": (8, 64, 640), "block_K": (16, 64, 320, 960)},
    ),
    Case(
        "linear and layer norm 512x256x320",
        linear_norm,
        {"M": 512, "N": 256, "K": 320},
        {"block_M": (1, 4, 16, 64, 512), "block_K": (8, 32, 80, 320)},
    ),
    Case(
        "cross entropy backward 160x6144",
        entropy_backward,
        {"M": 160, "N": 6144},
        {"block_M": (1, 8, 160), "block_N": (8, 32, 128, 512, 2048, 6144)},
    ),
    Case(
        "errors of columns 2560x1920",
        column_errors,
        {"M": 2560, "N": 1920},
        {"block_M": (1, 8, 64, 512, 2560), "block_N": (8, 64, 384, 1920)},
    ),
    Case(
        "step of a wave 64x96x160",
        wave,
        {"D": 64, "H": 96, "W": 160},
        {"block_D": (1, 8, 64), "block_H": (1, 8, 96), "block_W": (8, 32, 160)},
    ),
    Case(
        "channels last 8x192x784, bfloat16",
        channels_last,
        {"B": 8, "C": 192, "P": 784},
        {"block_C": (1, 8, 48, 192), "block_P": (1, 8, 56, 392, 784)},
    ),
    Case(
        "selective scan 256x192x16",
        selective_scan,
        {"L": 256, "D": 192, "S": 16},
        {"block_L": (1, 16, 64, 256), "block_D": (1, 8, 48, 192)},
    ),
    Case(
        "bags of 12 rows 768x320",
        bags,
        {"M": 768, "N": 320, "bag": 12, "words": 16},
        {"block_M": (1, 8, 50, 768), "block_N": (8, 32, 96, 320)},
    ),
    Case(
        "modulated gelu 4x480x640, bfloat16",
        modulated,
        {"B": 4, "L": 480, "D": 640},
        {"block_L": (1, 8, 60, 480), "block_D": (8, 32, 128, 640)},
    ),
)

CASES = (*SEEN, *HELD_OUT)
