"""The cells of `%tile examples`: each kernel of the library as one writes it in a cell."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from tileworkbench import kernels
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.kernels.tiles import tiles_of

# The shapes that each example is compiled for. Where random inputs say something, it is checked.
EXAMPLES: Mapping[str, str] = {
    "add": "M=300 N=500",
    "gelu": "M=300 N=500",
    "softmax": "M=200 N=1000",
    "online_softmax": "M=200 N=1000",
    "layernorm": "M=200 N=512",
    "add_layernorm": "M=200 N=512",
    "rmsnorm": "M=200 N=512",
    "add_rmsnorm": "M=200 N=512",
    "cross_entropy": "M=200 N=1000",
    "rmsnorm_backward": "M=100 N=256",
    "layernorm_backward": "M=100 N=256",
    "rope": "batch=2 seq_len=64 heads=4 dim=64",
    "histogram": "N=10000 bins=64",
    "topk": "M=100 N=64 k=4",
    "matmul": "M=256 N=256 K=256",
    "linear": "M=256 N=256 K=256",
    "split_k_matmul": "M=64 N=64 K=1024",
    "gemv": "N=512 K=512",
    "dequant_matmul": "M=64 N=128 K=256",
    "integer_dequant_matmul": "M=64 N=64 K=256",
    "dequant_gemv": "N=256 K=512",
    "convolution": "batch=2 height=16 width=16 channels=32 filters=64",
    "flash_attention": "batch=1 heads=2 seq_q=128 seq_kv=128 dim=64",
    "flash_attention_backward": "batch=1 heads=2 seq_q=64 seq_kv=64 dim=32",
    "flash_attention_varlen": "batch=2 total_q=100 total_kv=100 heads=2 dim=64",
    "flash_decoding": "batch=2 heads=4 seq_kv=256 dim=64",
    "mla_decode": "batch=1 heads=64 seqlen_kv=128",
    "block_sparse_attention": "batch=1 heads=2 seq_q=128 seq_kv=128 dim=64",
    "chunk_state": "batch=1 chunks=2 chunk_size=64 heads=2 headdim=64 dstate=64",
    "chunk_scan": "batch=1 chunks=2 chunk_size=64 heads=2 headdim=64 dstate=64",
}
_CHECKS = {
    "histogram": "--check 'lambda x: kernels.histogram.reference(x, bins=64)'",
    "topk": "--check 'lambda x: kernels.topk.reference(x, k=4)'",
    "chunk_state": "--check kernels.chunk_state.reference --rtol 1e-3",
    # Their inputs have to fit together, which random ones do not.
    "flash_attention_backward": "",
    "flash_attention_varlen": "",
}


def example_list() -> str:
    """The kernels by name, each with what it computes."""
    width = max(map(len, EXAMPLES))
    rows = (f"{name:<{width}}  {_summary(name)}" for name in EXAMPLES)
    return "'%tile examples NAME' makes a cell of one of these:\n" + "\n".join(rows) + "\n"


def _summary(name: str) -> str:
    """The first paragraph of a page, as one line."""
    return (inspect.getdoc(getattr(kernels, name)) or "").partition("\n\n")[0].replace("\n", " ")


def example_cell(name: str) -> str:
    """The text of a `%%tile` cell with a kernel of the library and all that it is made of."""
    defines = " ".join(f"-D {each}" for each in EXAMPLES[name].split())
    check = _CHECKS.get(name, f"--check kernels.{name}.reference")
    page = inspect.getmodule(getattr(kernels, name))
    imports: dict[str, None] = {"from tileworkbench import kernels": None} if check else {}
    parts: dict[str, str] = {}
    _collect(page, name, imports, parts)
    head = "\n".join([f"%%tile {name} {defines} {check}".rstrip(), *imports])
    return "\n\n".join([head, *parts.values()]) + "\n"


def _collect(page: Any, name: str, imports: dict[str, None], parts: dict[str, str]) -> None:
    """Put the definition of `name` in `page` behind those of the names that it uses; they may stand
    on other pages of the library. What comes from elsewhere is imported.
    """
    if name in parts or name == "T":
        return
    source = inspect.getsource(page)
    for node in ast.parse(source).body:
        if isinstance(node, ast.ImportFrom) and node.module != "__future__":
            if name not in {alias.name for alias in node.names}:
                continue
            if (node.module or "").startswith(kernels.__name__):
                _collect(import_module(node.module or ""), name, imports, parts)
            else:
                imports[f"from {node.module} import {name}"] = None
        elif name in _defined(node):
            plain = _without_types(node, source)
            used = {each.id for each in ast.walk(plain.tree) if isinstance(each, ast.Name)}
            for each in sorted(used - {name}):
                _collect(page, each, imports, parts)
            parts[name] = plain.text


def _defined(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else []
    return {each.id for each in targets if isinstance(each, ast.Name)}


@dataclass(frozen=True, slots=True)
class _Plain:
    text: str
    tree: ast.Module


def _without_types(node: ast.stmt, source: str) -> _Plain:
    """A definition without the types of its parameters, which are for type checkers and not for
    cells, and a factory without its reference.
    """
    text = ast.get_source_segment(source, node) or ""
    if isinstance(node, ast.FunctionDef):
        macros = [f"@{ast.unparse(d)}\n" for d in node.decorator_list if _is_of_language(d)]
        head, colon, body = _split_head(text)
        head = re.sub(r": [\w.]+(?: \| None)?(?: = )", "=", head)
        head = re.sub(r": [\w.]+(?: \| None)?(?=[,)\n])", "", head)
        head = re.sub(r" -> [^:]+$", "", head)
        tiles = tiles_of(node.name, "cpu")
        for name, size in tiles.sizes.items():
            head = head.replace(f"{name}=TABLE", f"{name}={size}")
        origin = f"# Tile sizes: the library's, {tiles.origin}.\n" if tiles.sizes else ""
        text = "".join(macros) + origin + head + colon + body
    return _Plain(text, ast.parse(text))


def _is_of_language(decorator: ast.expr) -> bool:
    return ast.unparse(decorator).startswith("T.")


def _split_head(text: str) -> tuple[str, str, str]:
    """The signature of a function, and what follows it from its colon on."""
    match = re.match(r"def .*?\)(?: -> [^:\n]+)?(?=:\n)", text, re.S)
    if match is None:
        raise ValueError(f"no signature in {text[:60]!r}")
    return match.group(), ":", text[match.end() + 1 :]
