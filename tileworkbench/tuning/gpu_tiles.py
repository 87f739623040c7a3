"""Default tile sizes for GPUs: where the time model prefers others to what was chosen by hand.

No GPU has confirmed the model, so it must be sure: other sizes are taken only if, at shapes that
people call the kernel with, they are predicted to be faster by more than the model's error
(`ERROR`, geometric mean), at none of them slower, and if they compile wherever those chosen by hand
do: on every architecture of the class, in every dtype. Nothing is run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf, prod

from tileworkbench import kernels
from tileworkbench.api import compile
from tileworkbench.compiler.diagnostics import CompileError
from tileworkbench.compiler.machine.tables import ARCHITECTURES
from tileworkbench.kernels.tiles import Tiles, class_of
from tileworkbench.tuning.suggest import predict, suggest
from tileworkbench.workbench.kernel import Kernel

ERROR = 1.2
"""How far the model may be off: what it counts is within 20 % of what cubins have
(`benchmarks/cost_model_gpu.py`). The latency of memory is known less well; what is chosen stays the
better one with 350 and with 700 clocks instead of 500."""
NOT_SLOWER = 1.01

BY_HAND = (
    "chosen by hand: of what fits everywhere the model prefers nothing by more than its error, "
    "simulated only"
)
UNKNOWN = "chosen by hand: lengths are data, unknown to the model"

Config = tuple[int, ...]
Times = Mapping[Config, tuple[float, ...]]
"""Milliseconds of a configuration at each shape; inf where it does not compile, or spills."""

_ROWS = ("M=8192 N=4096", "M=4096 N=1024", "M=64 N=8192")
_PIECES = ("M=8192 N=32768", "M=1024 N=16384")
_TABLES = ("M=8192 N=8192", "M=1024 N=4096")
_WEIGHTS = ("N=4096 K=4096", "N=14336 K=4096")
_TOKENS = ("M=64 N=14336 K=4096", "M=64 N=4096 K=4096")
_CHUNKS = tuple(
    f"batch=1 chunks={chunks} chunk_size=256 heads={heads} headdim=64 dstate=128"
    for chunks, heads in ((32, 64), (8, 16))
)

SHAPES: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(("add", "gelu"), _TABLES),
    **dict.fromkeys(("rmsnorm", "add_rmsnorm", "layernorm", "add_layernorm"), _ROWS),
    **dict.fromkeys(("rmsnorm_backward", "layernorm_backward"), _ROWS[:2]),
    **dict.fromkeys(("online_softmax", "cross_entropy"), _PIECES),
    **dict.fromkeys(("gemv", "dequant_gemv"), _WEIGHTS),
    **dict.fromkeys(("chunk_state", "chunk_scan"), _CHUNKS),
    "softmax": ("M=8192 N=4096", "M=8192 N=512"),
    "rope": (
        "batch=2 seq_len=2048 heads=16 dim=64",
        "batch=1 seq_len=4096 heads=32 dim=128",
    ),
    "histogram": ("N=1048576 bins=256", "N=16777216 bins=256"),
    "topk": ("M=1024 N=128 k=8", "M=4096 N=256 k=8", "M=1024 N=1024 k=8"),
    "matmul": ("M=4096 N=4096 K=4096", "M=1024 N=1024 K=1024", "M=4096 N=1024 K=8192"),
    "linear": ("M=4096 N=4096 K=4096", "M=2048 N=2048 K=2048", "M=128 N=11008 K=4096"),
    "split_k_matmul": ("M=64 N=256 K=8192", "M=128 N=512 K=16384"),
    "dequant_matmul": (*_TOKENS, "M=1024 N=4096 K=4096"),
    "integer_dequant_matmul": _TOKENS,
    "convolution": (
        "batch=8 height=56 width=56 channels=64 filters=64 pad=1",
        "batch=32 height=28 width=28 channels=128 filters=128 pad=1",
        "batch=32 height=14 width=14 channels=256 filters=256 pad=1",
    ),
    "flash_attention": (
        "batch=2 heads=16 seq_q=2048 seq_kv=2048 dim=64",
        "batch=1 heads=16 seq_q=4096 seq_kv=4096 dim=128",
        "batch=1 heads=16 seq_q=4096 seq_kv=4096 dim=64 causal=1",
    ),
    "flash_attention_backward": (
        "batch=1 heads=16 seq_q=1024 seq_kv=1024 dim=64",
        "batch=1 heads=16 seq_q=2048 seq_kv=2048 dim=64 causal=1",
    ),
    "mla_decode": ("batch=32 heads=128 seqlen_kv=4096", "batch=8 heads=128 seqlen_kv=2048"),
}
"""The shapes of a kernel, float16 where it takes a dtype. Kernels that are not here stay as they
are: `UNKNOWN`."""

AXES: Mapping[str, Mapping[str, Sequence[int]]] = {
    "gemv": {"block_N": (2, 4, 8), "block_K": (256, 512, 1024)},
    "dequant_gemv": {"block_N": (2, 4, 8), "block_K": (64, 128)},
    "mla_decode": {"block_N": (16, 32, 64), "block_H": (16, 32, 64), "threads": (128, 256)},
}
"""What is tried on GPUs, where it is not what the processor's row tries."""

ON_GPUS: Mapping[str, Config] = {
    "topk": (1,),
    "flash_attention_varlen": (64, 64),
    "gemv": (8, 256),
    "rmsnorm": (1,),
    "add_rmsnorm": (1,),
    "chunk_state": (64, 64, 64),
    "chunk_scan": (64, 64, 64),
    "dequant_matmul": (64, 128, 64),
    "integer_dequant_matmul": (64, 64, 64),
    "flash_attention_backward": (64, 64),
    "flash_attention": (64, 64),
    "rmsnorm_backward": (64, 256),
    "layernorm_backward": (64, 256),
    "rope": (8,),
    "split_k_matmul": (64, 64, 32),
    "dequant_gemv": (8, 128),
    "convolution": (64, 64, 32),
    "flash_decoding": (64,),
    "add": (64, 64),
    "gelu": (64, 64),
    "mla_decode": (64, 64, 256),
    "matmul": (128, 128, 32),
    "linear": (128, 128, 32),
    "layernorm": (1,),
    "add_layernorm": (1,),
    "histogram": (4096,),
    "softmax": (1,),
    "online_softmax": (1, 1024),
    "cross_entropy": (1, 1024),
}
"""What was chosen by hand, in the order of the axes."""


def gpu_row(name: str, target: str, axes: Mapping[str, Sequence[int]]) -> Tiles:
    """The row of a kernel for a class of GPUs."""
    by_hand = ON_GPUS[name]
    if name not in SHAPES:
        return Tiles(name, target, dict(zip(axes, by_hand, strict=True)), UNKNOWN)
    times = times_of(name, target, AXES.get(name, axes))
    better = (config for config in preferred(times, by_hand) if fits(name, target, config, axes))
    config = next(better, by_hand)
    scores = {each: score(times[each], times) for each in times}
    return Tiles(
        name,
        target,
        dict(zip(axes, config, strict=True)),
        "" if config != by_hand else BY_HAND,
        round(scores[config] / min(scores.values()), 3),
        len(times),
        {shape: float(f"{ms:.3g}") for shape, ms in zip(SHAPES[name], times[config], strict=True)},
    )


def times_of(name: str, target: str, axes: Mapping[str, Sequence[int]]) -> Times:
    """The predicted times of the configurations that compile, without spills as far as the model
    knows, for one of the shapes at least.

    What was chosen by hand is among them if it compiles: the model counts more registers than
    ptxas takes (304 and 225 in the backward pass of attention), so it may be wrong about spills.
    """
    by_hand = ON_GPUS[name]
    by_shape: list[dict[Config, float]] = []
    for shape in SHAPES[name]:
        constants = {**sizes_of(shape), **dtype_of(name, "float16")}
        ranked = suggest(getattr(kernels, name), target, axes, constants=constants).ranked
        times = {tuple(each.config.values()): each.predicted_ms for each in ranked}
        sizes = dict(zip(axes, by_hand, strict=True))
        kernel = _compiled(name, target, sizes, shape)
        if by_hand not in times and kernel is not None:
            times[by_hand] = predict(kernel).total_ms
        by_shape.append(times)
    configs = dict.fromkeys(config for each in by_shape for config in each)
    return {config: tuple(each.get(config, inf) for each in by_shape) for config in configs}


def score(times: Sequence[float], all_times: Times) -> float:
    """The geometric mean of times over the shortest at their shapes."""
    shortest = (min(column) for column in zip(*all_times.values(), strict=True))
    return _mean([ours / best for ours, best in zip(times, shortest, strict=True)])


def _mean(ratios: Sequence[float]) -> float:
    return float(prod(ratios) ** (1 / len(ratios)))


def preferred(times: Times, by_hand: Config) -> list[Config]:
    """Configurations that the model is sure to be better than `by_hand`, the best first. Where that
    does not compile at a shape, whatever does is better."""
    own = times.get(by_hand)
    if own is None or inf in own:
        own = tuple(inf for _ in next(iter(times.values())))
    ranked = sorted(times, key=lambda config: (score(times[config], times), config))
    return [config for config in ranked if _is_better(times[config], own)]


def _is_better(times: Sequence[float], own: Sequence[float]) -> bool:
    if inf in times:
        return False
    ratios = [theirs / ours for theirs, ours in zip(own, times, strict=True)]
    return _mean(ratios) > ERROR and min(ratios) * NOT_SLOWER >= 1


def fits(name: str, target: str, config: Config, axes: Mapping[str, Sequence[int]]) -> bool:
    """Whether a configuration compiles wherever the one chosen by hand does."""
    ours, by_hand = (dict(zip(axes, each, strict=True)) for each in (config, ON_GPUS[name]))
    return all(
        _compiles(name, arch, ours, dtype) or not _compiles(name, arch, by_hand, dtype)
        for arch, dtype in _everywhere(name, target)
    )


def _everywhere(name: str, target: str) -> Iterator[tuple[str, str]]:
    dtypes = ("float16", "bfloat16", "float32", "float64") if dtype_of(name, "") else ("",)
    for arch in (each for each in ARCHITECTURES if class_of(each) == target):
        yield from ((arch, dtype) for dtype in dtypes)


def _compiles(name: str, arch: str, sizes: Mapping[str, int], dtype: str) -> bool:
    return _compiled(name, arch, sizes, SHAPES[name][0], dtype) is not None


def _compiled(
    name: str, arch: str, sizes: Mapping[str, int], shape: str, dtype: str = "float16"
) -> Kernel | None:
    """A kernel, lowered only; None where it does not compile."""
    constants = {**sizes_of(shape), **dtype_of(name, dtype)}
    try:
        return compile(getattr(kernels, name)(**constants, **sizes), target=f"sim:{arch}")
    except CompileError:
        return None


def sizes_of(shape: str) -> dict[str, int]:
    """The arguments of a shape."""
    pairs = (each.split("=") for each in shape.split())
    return {name: int(value) for name, value in pairs}


def dtype_of(name: str, dtype: str) -> dict[str, str]:
    """The argument of a dtype, of a kernel that has one."""
    has_none = name in ("histogram", "integer_dequant_matmul")
    return {} if has_none else {"dtype": dtype}
