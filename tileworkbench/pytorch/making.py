"""Kernels of groups: compiled once for all groups that are one but for names."""

from __future__ import annotations

import linecache
from collections.abc import Mapping
from typing import Any

from tileworkbench.api import compile as compile_kernel
from tileworkbench.compiler.device.host.threads import get_num_threads
from tileworkbench.compiler.target import parse_target
from tileworkbench.pytorch.calls import Call
from tileworkbench.pytorch.forms import form_of
from tileworkbench.pytorch.nodes import Node, is_work, label_of
from tileworkbench.pytorch.references import reference_of
from tileworkbench.pytorch.regions import Region
from tileworkbench.pytorch.report import Part, Report
from tileworkbench.pytorch.rules import AnyGroup, text_of
from tileworkbench.pytorch.sizes import OpenSizes
from tileworkbench.pytorch.trials import trial
from tileworkbench.pytorch.written import Written


class Maker:
    """Makes the kernels of one graph. `names` are those of the graph's inputs; kernels of a report
    are used again, and `use` adds new ones to it.
    """

    def __init__(self, names: Mapping[Node, str], report: Report, target: str | None) -> None:
        self._names, self._report, self._target = names, report, target
        is_gpu = target not in (None, "auto") and parse_target(str(target)).kind != "cpu"
        self._threads = 0 if is_gpu else get_num_threads()
        self._forms = dict(report.forms)
        self._slow: dict[str, str] = {}  # why torch runs what this kernel does

    def make(self, group: AnyGroup, sizes: OpenSizes) -> tuple[Part, Call]:
        """(kernel, its call) of a group."""
        taken = {part.name for part in self._forms.values()}
        what = text_of(group, self._names, taken, self._threads)
        form = form_of(what.text)
        part = self._forms.get(form)
        if part is None:
            kernel = compile_kernel(_function(what), target=self._target)
            operations = tuple(label_of(node) for node in group.nodes if is_work(node))
            reference = reference_of(group, what, sizes)
            part = Part(what.name, what.text, operations, kernel, reference, what.note)
            self._forms[form] = part
        return part, Call(part.kernel, what, isinstance(group, Region) and bool(group.updates))

    def try_out(self, group: AnyGroup, part: Part, call: Call, sizes: OpenSizes) -> str:
        """Why torch is faster than a group's kernel, "" where it is not."""
        if part.name not in self._slow:
            known = any(each is part for each in self._report.parts)
            self._slow[part.name] = "" if known else trial(group, call, sizes)
        return self._slow[part.name]

    def use(self, part: Part) -> None:
        """Add a kernel to the report, which is new there or not."""
        form = next(form for form, each in self._forms.items() if each is part)
        if form not in self._report.forms:
            self._report.forms[form] = part
            self._report.parts.append(part)


_count = 0


def _function(what: Written) -> Any:
    """The `T.prim_func` of a kernel's text, which errors and views find by its file's name."""
    global _count
    import tileworkbench.language as T

    _count += 1
    file = f"<torch {what.name} {_count}>"
    linecache.cache[file] = (len(what.text), None, what.text.splitlines(keepends=True), file)
    space: dict[str, Any] = {"T": T, "__name__": "tileworkbench_generated"}
    exec(compile(what.text, file, "exec"), space)
    return space[what.name]
