"""Whether models agree through `torch.compile(backend="tileworkbench")`: many architectures of
`transformers` and `torchvision` with few, random weights, in float32 and bfloat16.

    python benchmarks/models_agree.py [NAME ...]      # without names all, about six minutes

Errors are of the first result, relative to the same model in float64 (`|x - y| / |y|`, as vectors),
ours beside torch's own. Models that torch does not run in float64 are compared with float32.
Shapes, dtypes and strides must be torch's. Ends with 1 where ours is three times as far off.
See README.md for the interpreter that has those packages.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from common import environment, markdown_table, write_results
from real_models import short  # and torchvision can be imported beside this build of torch

Inputs = dict[str, Any]
FLOORS = {torch.float32: 1e-5, torch.bfloat16: 1e-2}
TIMES = 3
VOCABULARY = 211
COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
}
SHARED = {**COMMON, "num_key_value_heads": 2}
SLIDING = {**SHARED, "head_dim": 16, "sliding_window": 8}
EXPERTS = {**SHARED, "num_experts": 6, "num_experts_per_tok": 2}
DECODER = {
    "vocab_size": VOCABULARY,
    "d_model": 64,
    **{f"{part}_layers": 2 for part in ("encoder", "decoder")},
    **{f"{part}_attention_heads": 4 for part in ("encoder", "decoder")},
    **{f"{part}_ffn_dim": 96 for part in ("encoder", "decoder")},
}
# Class of transformers, which has a configuration beside it, and what that is made with.
LANGUAGE: dict[str, tuple[str, str, dict[str, Any]]] = {
    "BERT": ("BertForMaskedLM", "BertConfig", COMMON),
    "RoBERTa": ("RobertaModel", "RobertaConfig", {**COMMON, "max_position_embeddings": 64}),
    "Qwen2": ("Qwen2ForCausalLM", "Qwen2Config", SHARED),
    "Qwen3": ("Qwen3ForCausalLM", "Qwen3Config", {**SHARED, "head_dim": 16}),
    "Qwen2-MoE": (
        "Qwen2MoeForCausalLM",
        "Qwen2MoeConfig",
        {**EXPERTS, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 48},
    ),
    "OLMoE": ("OlmoeForCausalLM", "OlmoeConfig", EXPERTS),
    "gpt-oss": (
        "GptOssForCausalLM",
        "GptOssConfig",
        {**SLIDING, "num_local_experts": 4, "num_experts_per_tok": 2},
    ),
    "DeepSeek-V3": (
        "DeepseekV3ForCausalLM",
        "DeepseekV3Config",
        {
            **COMMON,
            **{"num_key_value_heads": 4, "moe_intermediate_size": 32, "n_routed_experts": 8},
            **{"n_group": 2, "topk_group": 1, "num_experts_per_tok": 2, "q_lora_rank": 32},
            **{"first_k_dense_replace": 1, "kv_lora_rank": 16, "qk_rope_head_dim": 8},
            **{"v_head_dim": 16, "qk_nope_head_dim": 16},
        },
    ),
    "Gemma 2": ("Gemma2ForCausalLM", "Gemma2Config", {**SLIDING, "query_pre_attn_scalar": 16}),
    "Gemma 3": ("Gemma3ForCausalLM", "Gemma3TextConfig", SLIDING),
    "Phi-3": ("Phi3ForCausalLM", "Phi3Config", {**SHARED, "pad_token_id": 0}),
    "OPT": (
        "OPTForCausalLM",
        "OPTConfig",
        {
            **{"vocab_size": VOCABULARY, "hidden_size": 64, "num_hidden_layers": 2},
            **{"num_attention_heads": 4, "ffn_dim": 96, "word_embed_proj_dim": 64},
        },
    ),
    "Falcon": ("FalconForCausalLM", "FalconConfig", COMMON),
    "BLOOM": ("BloomForCausalLM", "BloomConfig", {**COMMON, "n_layer": 2, "n_head": 4}),
    "GPT-NeoX": ("GPTNeoXForCausalLM", "GPTNeoXConfig", COMMON),
    "MPT": (
        "MptForCausalLM",
        "MptConfig",
        {"vocab_size": VOCABULARY, "d_model": 64, "n_heads": 4, "n_layers": 2},
    ),
    "BART": ("BartModel", "BartConfig", {**DECODER, "max_position_embeddings": 64}),
    "Mamba": ("MambaForCausalLM", "MambaConfig", COMMON),
}
IMAGES = (
    *("mobilenet_v3_small", "efficientnet_b0", "convnext_tiny", "swin_t", "densenet121"),
    *("shufflenet_v2_x0_5", "vgg11", "regnet_y_400mf", "squeezenet1_0", "mnasnet0_5"),
)


def language(name: str) -> tuple[torch.nn.Module, Inputs]:
    """A model of `LANGUAGE` and two sequences of 24 tokens."""
    import transformers

    model, config, values = LANGUAGE[name]
    made = getattr(transformers, config)(**values)
    made.use_cache = False
    return getattr(transformers, model)(made), {"input_ids": _tokens(24)}


def t5(_: str) -> tuple[torch.nn.Module, Inputs]:
    """Encoder and decoder, with a bias of positions."""
    import transformers

    config = transformers.T5Config(
        **{"vocab_size": VOCABULARY, "d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2},
        **{"num_heads": 4, "decoder_start_token_id": 0, "use_cache": False},
    )
    inputs = {"input_ids": _tokens(24), "decoder_input_ids": _tokens(9)}
    return transformers.T5ForConditionalGeneration(config), inputs


def whisper(_: str) -> tuple[torch.nn.Module, Inputs]:
    """Convolutions of a spectrum, then encoder and decoder."""
    import transformers

    config = transformers.WhisperConfig(
        **DECODER,
        **{"num_mel_bins": 16, "max_source_positions": 50, "max_target_positions": 32},
        **{"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1},
    )
    config.use_cache = False
    inputs = {"input_features": torch.randn(2, 16, 100), "decoder_input_ids": _tokens(9)}
    return transformers.WhisperModel(config), inputs


def image(name: str) -> tuple[torch.nn.Module, Inputs]:
    """A model of torchvision and two images."""
    import torchvision

    return getattr(torchvision.models, name)(weights=None), {"x": torch.randn(2, 3, 64, 64)}


CASES: dict[str, Callable[[str], tuple[torch.nn.Module, Inputs]]] = {
    **dict.fromkeys(LANGUAGE, language),
    **{"T5": t5, "Whisper": whisper},
    **dict.fromkeys(IMAGES, image),
}


def main() -> int:
    facts = environment(("tileworkbench", "llvmlite", "torch", "transformers", "torchvision"))
    wanted = sys.argv[1:] or list(CASES)
    rows = []
    for name in wanted:
        for dtype in FLOORS:
            rows.append({"model": name, **compare(name, dtype)})
            print(rows[-1], flush=True)
    table = markdown_table(
        ("model", "dtype", "ours", "torch", "relative to"),
        [
            (row["model"], row["dtype"], f"{row['ours']:.1e}", f"{row['torch']:.1e}", row["exact"])
            for row in rows
        ],
    )
    print(table)
    if not sys.argv[1:]:
        print(f"\nwritten to {write_results('models_agree', facts, rows, table)}")
    return int(not all(row["agrees"] for row in rows))


def compare(name: str, dtype: torch.dtype) -> dict[str, Any]:
    """Errors of a model in one dtype. Raises `AssertionError` for a result of another form."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    model, inputs = CASES[name](name)
    model = model.eval().to(dtype)
    inputs = _converted(inputs, dtype)
    with torch.no_grad():
        found = list(_tensors(torch.compile(model, backend="tileworkbench")(**inputs)))
        wanted = list(_tensors(model(**inputs)))
        assert [_form(each) for each in found] == [_form(each) for each in wanted]
        for exact in (torch.float64, torch.float32):
            try:
                right = next(_tensors(model.to(exact)(**_converted(inputs, exact))))
                break
            except RuntimeError:  # torch has no grouped product of float64
                continue
    ours, own = _error(found[0], right), _error(wanted[0], right)
    return {
        **{"dtype": short(dtype), "ours": ours, "torch": own, "exact": short(exact)},
        "agrees": ours <= TIMES * own + FLOORS[dtype],
    }


def _tokens(count: int) -> torch.Tensor:
    return torch.randint(5, VOCABULARY - 1, (2, count))


def _converted(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    return {
        name: value.to(dtype) if value.is_floating_point() else value
        for name, value in inputs.items()
    }


def _tensors(result: Any) -> Iterator[torch.Tensor]:
    """The tensors of a result, which may be nested."""
    if isinstance(result, torch.Tensor):
        yield result
    for each in result.values() if isinstance(result, dict) else ():
        yield from _tensors(each)
    for each in result if isinstance(result, tuple | list) else ():
        yield from _tensors(each)


def _form(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.dtype, tensor.stride()


def _error(found: torch.Tensor, exact: torch.Tensor) -> float:
    difference = found.double() - exact.double()
    return float(difference.norm() / exact.double().norm())


if __name__ == "__main__":
    sys.exit(main())
