"""Pages of the language: every name of `T` by group, with its lines."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module

import tileworkbench.language as T
from docs import markdown
from docs.examples import FRAMES, description, example
from tileworkbench.compiler.frontend.dtypes import TileDType

TITLES = {
    "functions": "Kernels and their parameters",
    "memory": "Memory",
    "tile": "Operators on tiles",
    "loops": "Loops",
    "math": "Arithmetic and mathematics",
    "dtypes": "Element types",
    "reducers": "Reducers",
    "predicates": "Questions about tiles",
    "atomics": "Atomic accesses",
    "layouts": "Layouts",
    "hints": "Hints and checks",
    "printing": "Printing and stopping",
    "threads": "Threads",
    "exchanges": "Exchange between threads",
    "barriers": "Barriers and the copy engine",
    "asynchronous": "Asynchronous copies and products",
    "clusters": "Clusters of blocks",
    "gathers": "Gathering rows",
    "matrix": "Sparse and scaled products",
    "convolution": "Convolution",
    "vectors": "Vectors",
    "rounding": "Rounding",
    "bits": "Bits",
    "random": "Random numbers",
    "allreduce": "Reductions over threads",
    "extern": "Other languages",
}


def groups() -> dict[str, list[str]]:
    """The names of each group, in the order of `TITLES`; names of one thing are neighbours."""
    found: dict[str, list[str]] = {group: [] for group in TITLES}
    for group, names in T._SUPPORTED.items():
        found[group] += names
    for name, value in T._names.items():
        if any(name in names for names in found.values()) or name in T.UNSUPPORTED:
            continue
        if isinstance(value, TileDType):
            found["dtypes"].append(name)
        else:
            found[value.__module__.rpartition(".")[2]].append(name)
    return found


def pages() -> Iterator[tuple[str, str]]:
    made = groups()
    rows = []
    for group, names in made.items():
        shown = ", ".join(f"`T.{name}`" for name in names[:5]) + (", ..." if names[5:] else "")
        rows.append((f"[{TITLES[group]}]({group}.md)", shown))
        yield f"language/{group}.md", _dtypes(names) if group == "dtypes" else _group(group, names)
    yield "language/unsupported.md", _unsupported()
    yield (
        "language/index.md",
        markdown.page(
            "# The language",
            "`import tileworkbench.language as T`. A kernel is an ordinary Python function whose "
            "body is traced: it runs once, each `T` name notes what the kernel does there, and "
            "the compiler goes on from that. The lines of each name run as they stand, in the "
            "kernel that its page shows.",
            markdown.table(("group", "names"), rows),
            markdown.contents([*made, "unsupported"]),
        ),
    )


def _about(group: str) -> str:
    return markdown.prose(inspect.getdoc(import_module(f"tileworkbench.language.{group}")) or "")


def _group(group: str, names: list[str]) -> str:
    entries, used = [], []
    for name in names:
        made = example(name, group)
        if made.frame is not None and made.frame not in used:
            used.append(made.frame)
        where = f", in the kernel of {made.frame}" if made.frame else ""
        entries.append(
            markdown.page(
                f"### `T.{name}`",
                markdown.signature(name, getattr(T, name), "T."),
                markdown.prose(description(name)),
                f"For example{where}:",
                markdown.fenced(made.code),
            )
        )
    frames = []
    if used:
        frames.append("## The kernel that the lines stand in")
        frames.append("At the place of `...`.")
    for frame in used:
        frames.append(f"The kernel of {frame}:")
        frames.append(markdown.fenced(FRAMES[frame]))
    return markdown.page(f"# {TITLES[group]}", _about(group), *frames, "## Names", *entries)


def _dtypes(names: list[str]) -> str:
    """Element types as a table: one to a row, with its vectors."""
    types = [name for name in names if isinstance(getattr(T, name), TileDType)]
    scalars = [name for name in types if getattr(T, name).lanes == 1]
    rows = []
    for name in scalars:
        dtype = getattr(T, name)
        same = "" if str(dtype) == name else f"the same as `{dtype}`"
        wide = ", ".join(f"`T.{each}`" for each in types if each.startswith(f"{name}x"))
        rows.append((f"`T.{name}`", same or f"{dtype.bits} bits", wide))
    made = example("float16", "dtypes")
    return markdown.page(
        f"# {TITLES['dtypes']}",
        _about("dtypes"),
        "## `T.dtype`",
        markdown.prose(description("dtype")),
        markdown.fenced(example("dtype", "dtypes").code),
        "## Types",
        markdown.prose(description("float16")),
        "With each type, in a kernel:",
        markdown.fenced(made.code),
        markdown.table(("type", "what", "vectors of it"), rows),
    )


def _unsupported() -> str:
    return markdown.page(
        "# Not supported yet",
        "These names exist, and say so at their line when they are used.",
        markdown.table(("name", "instead"), [(f"`T.{n}`", t) for n, t in T.UNSUPPORTED.items()]),
        "The language has no function of these names; the error says what to write:",
        markdown.table(("name", "instead"), [(f"`T.{n}`", f"`{t}`" if "(" in t else t)
                                             for n, t in T.INSTEAD.items()]),
    )  # fmt: skip
