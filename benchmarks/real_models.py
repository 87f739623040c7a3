"""Models of `transformers` and `torchvision` through `torch.compile(backend="tileworkbench")`,
against eager and inductor: prefill and decode, float32 and bfloat16, 1 and 2 threads.

    python benchmarks/real_models.py [--quick] [--rows TEXT] [--report]

See README.md for the interpreter that has those packages. Inductor needs a C++ compiler.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
import torch._inductor.config
from common import environment, markdown_table, write_results

import tileworkbench as tw
from tileworkbench.compiler.driver import clear_memory_cache
from tileworkbench.pytorch.backend import tile_backend
from tileworkbench.pytorch.report import Report

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # only classes are used, no weights are loaded
# The shapes of torchvision's own operators (boxes): beside another build of torch the operators are
# not there, and these networks use none.
_SHAPES = "torchvision._meta_registrations"
sys.modules.setdefault(_SHAPES, types.ModuleType(_SHAPES))

SECONDS = 1.2  # of rounds for a row
FEWEST, MOST = 6, 60  # rounds of a row
LENGTH = 128  # tokens of a prefill and of the cache that decoding goes on from
TOKENS = 512  # of the vocabulary
WHEN = {
    "first": "in a new process with empty caches",
    "again": "where the process has compiled the model before, caches on disk empty",
}


@dataclass(frozen=True)
class Case:
    """A model, and what it is called with; `make` gets the element type."""

    name: str
    make: Callable[[torch.dtype], tuple[torch.nn.Module, Callable[[], dict[str, Any]]]]


def _ids(length: int) -> torch.Tensor:
    return torch.randint(0, TOKENS, (1, length))


def _decoder(make: Callable[[Any], torch.nn.Module], decodes: bool) -> Callable[..., Any]:
    """A model of text. One that decodes goes on from a cache of fixed size, whose place is set back
    before each call: all calls do the same.
    """

    def built(dtype: torch.dtype) -> tuple[torch.nn.Module, Callable[[], dict[str, Any]]]:
        import transformers

        model = make(transformers).to(dtype)
        if not decodes:
            ids = _ids(LENGTH)
            return model, lambda: {"input_ids": ids, "use_cache": False}
        start, token = _ids(LENGTH), _ids(1)
        cache = transformers.StaticCache(config=model.config, max_cache_len=LENGTH + 32)
        with torch.no_grad():
            model(input_ids=start, past_key_values=cache, use_cache=True)
        position = torch.tensor([[LENGTH]])

        def arguments() -> dict[str, Any]:
            for layer in cache.layers:
                if isinstance(getattr(layer, "cumulative_length", None), torch.Tensor):
                    layer.cumulative_length.fill_(LENGTH)
            return {
                "input_ids": token,
                "position_ids": position,
                "past_key_values": cache,
                "use_cache": True,
            }

        return model, arguments

    return built


def _recurrent(make: Callable[[Any], torch.nn.Module]) -> Callable[..., Any]:
    """Decoding of a model whose state is of fixed size; each call gets a copy of the same state."""

    def built(dtype: torch.dtype) -> tuple[torch.nn.Module, Callable[[], dict[str, Any]]]:
        import transformers

        model = make(transformers).to(dtype)
        with torch.no_grad():
            begun = model(input_ids=_ids(LENGTH), use_cache=True)
        name = "cache_params" if "cache_params" in begun else "past_key_values"
        state, token = begun[name], _ids(1)
        held = [
            (values, key, value.clone())
            for layer in state.layers
            for values in vars(layer).values()
            if isinstance(values, dict)
            for key, value in values.items()
            if torch.is_tensor(value)
        ]

        def arguments() -> dict[str, Any]:
            for values, key, value in held:
                values[key] = values[key].copy_(value)
            return {"input_ids": token, name: state, "use_cache": True}

        return model, arguments

    return built


def llama(transformers: Any) -> torch.nn.Module:
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=TOKENS,
            hidden_size=512,
            intermediate_size=1376,
            num_hidden_layers=2,
            num_attention_heads=8,
            num_key_value_heads=2,
        )
    )


def gpt2(transformers: Any) -> torch.nn.Module:
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=TOKENS, n_embd=512, n_layer=2, n_head=8)
    )


def mamba2(transformers: Any) -> torch.nn.Module:
    return transformers.Mamba2ForCausalLM(
        transformers.Mamba2Config(
            vocab_size=TOKENS,
            hidden_size=256,
            num_hidden_layers=2,
            num_heads=8,
            head_dim=64,
            state_size=64,
            n_groups=1,
            chunk_size=64,
        )
    )


def mixtral(transformers: Any) -> torch.nn.Module:
    return transformers.MixtralForCausalLM(
        transformers.MixtralConfig(
            vocab_size=TOKENS,
            hidden_size=256,
            intermediate_size=512,
            num_hidden_layers=2,
            num_attention_heads=8,
            num_key_value_heads=2,
            num_local_experts=4,
        )
    )


def vit(dtype: torch.dtype) -> tuple[torch.nn.Module, Callable[[], dict[str, Any]]]:
    import transformers

    config = transformers.ViTConfig(
        hidden_size=256, intermediate_size=1024, num_hidden_layers=2, num_attention_heads=4
    )
    pixels = torch.randn(1, 3, 224, 224, dtype=dtype)
    return transformers.ViTModel(config).to(dtype), lambda: {"pixel_values": pixels}


def resnet(dtype: torch.dtype) -> tuple[torch.nn.Module, Callable[[], dict[str, Any]]]:
    from torchvision.models.resnet import BasicBlock, ResNet

    model = ResNet(BasicBlock, [1, 1, 1, 1], num_classes=100).to(dtype)
    image = torch.randn(1, 3, 128, 128, dtype=dtype)
    return model, lambda: {"x": image}


CASES = (
    Case("Llama, prefill", _decoder(llama, decodes=False)),
    Case("Llama, decode", _decoder(llama, decodes=True)),
    Case("GPT-2, prefill", _decoder(gpt2, decodes=False)),
    Case("GPT-2, decode", _decoder(gpt2, decodes=True)),
    Case("Mamba-2, prefill", _decoder(mamba2, decodes=False)),
    Case("Mamba-2, decode", _recurrent(mamba2)),
    Case("Mixtral, prefill", _decoder(mixtral, decodes=False)),
    Case("Mixtral, decode", _decoder(mixtral, decodes=True)),
    Case("ViT", vit),
    Case("ResNet", resnet),
)
DTYPES = (torch.float32, torch.bfloat16)


def main() -> None:
    quick = "--quick" in sys.argv
    wanted = sys.argv[sys.argv.index("--rows") + 1] if "--rows" in sys.argv else ""
    facts = environment(("tileworkbench", "llvmlite", "torch", "transformers", "torchvision"))
    rows: list[dict[str, Any]] = []
    for case in CASES:
        for dtype in DTYPES:
            row = f"{case.name}, {short(dtype)}"
            if wanted.lower() not in row.lower():
                continue
            threads = (1,) if quick else (1, 2)
            for measured in _apart(CASES.index(case), short(dtype), threads, quick):
                report = measured.pop("report")
                print(measured, flush=True)
                if "--report" in sys.argv:
                    print(report, flush=True)
                rows.append({**measured, "report": report})
    table = _table(rows)
    print(table)
    if not quick and not wanted:
        print(f"\nwritten to {write_results('real_models', facts, rows, table)}")


def _apart(case: int, dtype: str, threads: tuple[int, ...], quick: bool) -> list[dict[str, Any]]:
    """`measure` in a process of its own, so that caches in memory are empty too: inductor keeps its
    compiled headers there, which are most of its first call, and we keep what we have loaded.
    """
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_measured, (case, dtype, threads, quick))


def _measured(case: int, dtype: str, threads: tuple[int, ...], quick: bool) -> list[dict[str, Any]]:
    torch._inductor.config.force_disable_caches = True  # first calls are first calls
    return measure(CASES[case], getattr(torch, dtype), threads, quick)


def _table(rows: list[dict[str, Any]]) -> str:
    table = markdown_table(
        (
            *("model", "dtype", "threads", "ours", "eager/ours", "inductor/ours"),
            *("first call", "inductor", "again", "inductor", "error", "inductor's error"),
        ),
        [
            (
                *(row["model"], row["dtype"], str(row["threads"]), f"{1e3 * row['ours']:.2f} ms"),
                *(f"{row[kind] / row['ours']:.2f}" for kind in ("eager", "inductor")),
                *(f"{row[f'{when}_{who}']:.1f} s" for when in WHEN for who in ("ours", "inductor")),
                *(f"{row[kind]:.1e}" for kind in ("error", "error_inductor")),
            )
            for row in rows
        ],
    )
    ratios = [min(row["eager"], row["inductor"]) / row["ours"] for row in rows]
    compiled = ", ".join(
        f"{statistics.geometric_mean(parts):.2f} of inductor's (worst {max(parts):.2f}) {text}"
        for when, text in WHEN.items()
        for parts in [[row[f"{when}_ours"] / row[f"{when}_inductor"] for row in rows]]
    )
    return table + (
        f"\n\nGeometric mean over the better of the two: {statistics.geometric_mean(ratios):.2f}, "
        f"worst {min(ratios):.2f}. First calls: {compiled}. No gradients; smallest times.\n"
    )


def measure(
    case: Case, dtype: torch.dtype, threads: tuple[int, ...], quick: bool
) -> list[dict[str, Any]]:
    """A row for each number of threads: smallest times of a call and times of the first calls, in
    seconds, and largest differences from eager results over the largest of those. All is compiled
    `again`, with what a process keeps in memory of the first time.
    """
    torch.manual_seed(0)
    model, arguments = case.make(dtype)
    model.eval()
    with torch.no_grad():  # what dynamo keeps of source files is paid by neither, not by the first
        torch.compile(model, backend="eager")(**arguments())
    rows = []
    found: dict[str, Any] = {"model": case.name, "dtype": short(dtype)}
    made: dict[str, torch.Tensor] = {}
    with torch.no_grad():
        for when in WHEN:
            torch._dynamo.reset()
            report = Report()
            ours = functools.partial(tile_backend, report=report)
            calls = {
                "ours": torch.compile(model, backend=ours),
                "inductor": torch.compile(model, backend="inductor"),
                "eager": model,
            }
            _set_threads(threads[0])
            for name, call in calls.items():
                found[f"{when}_{name}"], made[name] = _first(call, arguments)
        exact = made["eager"].double()
        for name, key in (("ours", "error"), ("inductor", "error_inductor")):
            found[key] = float((made[name].double() - exact).abs().max() / exact.abs().max())
        for count in threads:
            _set_threads(count)
            if count != threads[0]:
                for call in calls.values():
                    call(**arguments())
            times = _times(calls, arguments, quick)
            rows.append({**found, "threads": count, **times, "report": str(report)})
    return rows


def _set_threads(count: int) -> None:
    torch.set_num_threads(count)
    tw.set_num_threads(count)


def _first(call: Any, arguments: Any) -> tuple[float, torch.Tensor]:
    """The time of a first call with empty caches, inductor's and ours, and its result."""
    clear_memory_cache()
    variables = ("TORCHINDUCTOR_CACHE_DIR", "TILEWORKBENCH_CACHE_DIR")
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.dict(os.environ, dict.fromkeys(variables, folder)),
    ):
        data = arguments()
        start = time.perf_counter()
        result = call(**data)
        seconds = time.perf_counter() - start
    logits = result if isinstance(result, torch.Tensor) else result[0]
    return seconds, logits.clone()


def _times(calls: dict[str, Any], arguments: Any, quick: bool) -> dict[str, float]:
    """Smallest times of a call, in rounds that call each once, in turns of both orders."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    begun = time.perf_counter()
    for round_ in range(-2, MOST):
        enough = time.perf_counter() - begun > (SECONDS / 4 if quick else SECONDS)
        if enough and round_ >= FEWEST:
            break
        for name, call in calls.items() if round_ % 2 else reversed(calls.items()):
            data = arguments()
            start = time.perf_counter()
            call(**data)
            if round_ >= 0:
                times[name].append(time.perf_counter() - start)
    return {name: min(values) for name, values in times.items()}


def short(dtype: torch.dtype) -> str:
    """A dtype as tables name it: "float32"."""
    return str(dtype).removeprefix("torch.")


if __name__ == "__main__":
    main()
