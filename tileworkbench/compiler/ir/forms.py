"""How statements stand in the text of the IR that are plain calls: `T.name(arguments, option=...)`.

A form names the fields of a class that are arguments and those that are options. The printer writes
and the parser reads by it, so neither lists fields of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir import tile
from tileworkbench.compiler.ir.build import FALSE


@dataclass(frozen=True, slots=True)
class Form:
    """The text of the statements `kind`.

    `options` are fields by the keyword of each; one with its usual value is left out: that in
    `usual`, else the default of the class. The value of the field `stem` ends the name of the call,
    as in `T.reduce_max`.
    """

    kind: type[st.Stmt]
    arguments: tuple[str, ...] = ()
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)
    usual: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    stem: str = ""

    def types(self) -> dict[str, str]:
        """The annotations of the fields."""
        return {field.name: str(field.type) for field in dataclasses.fields(self.kind)}  # type: ignore[arg-type]

    def defaults(self) -> dict[str, Any]:
        """The usual values, of the fields that have one."""
        fields = dataclasses.fields(self.kind)  # type: ignore[arg-type]
        own = {field.name: field.default for field in fields}
        return {k: v for k, v in own.items() if v is not dataclasses.MISSING} | dict(self.usual)


def _named(*fields: str) -> dict[str, str]:
    return {field: field for field in fields}


FORMS = {
    "copy": Form(tile.Copy, ("src", "dst"), _named("coalesced_width", "loop_layout")),
    "gemm": Form(
        tile.Gemm,
        ("a", "b", "c"),
        {
            "transpose_A": "transpose_a",
            "transpose_B": "transpose_b",
            "policy": "policy",
            "clear_accum": "clear",
            "instruction": "instruction",
        },
        {"transpose_a": False, "transpose_b": False, "clear": FALSE},
    ),
    "fill": Form(tile.Fill, ("dst", "value")),
    "reduce": Form(
        tile.Reduce,
        ("src", "dst"),
        _named("dim", "clear", "nan_propagate"),
        {"clear": True},
        stem="kind",
    ),
    "scan": Form(tile.Scan, ("src", "dst"), _named("dim", "reverse"), stem="kind"),
    "pack": Form(
        tile.Pack,
        ("src", "dst"),
        _named(
            *("rows", "cols", "row_stride", "col_stride", "valid_rows", "valid_cols"),
            *("width", "group"),
        ),
        stem="operand",
    ),
    "micro_gemm": Form(
        tile.MicroGemm,
        ("a", "b", "c"),
        _named("lda", "columns", "ldc", "m", "n", "k", "mr", "nr", "group", "clear", "isa"),
    ),
    "assume": Form(st.Assume, ("cond",)),
    "device_assert": Form(st.DeviceAssert, ("cond", "message", "value")),
    "breakpoint": Form(st.Breakpoint),
}
FORM_OF = {form.kind: (name, form, form.defaults()) for name, form in FORMS.items()}
