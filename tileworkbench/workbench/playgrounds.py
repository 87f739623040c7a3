"""`tw.playground`: layouts without a kernel, operations on them, and the code to paste back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import partial
from typing import Any

from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.layout import Fragment, Layout, algebra, atoms
from tileworkbench.compiler.layout.expression import layout_expression
from tileworkbench.viz.display import playground_mimebundle
from tileworkbench.viz.model.bundle import Bundle
from tileworkbench.viz.model.layout import layout_line
from tileworkbench.viz.model.playground import Sheet, Typed, play_text, read_sheets
from tileworkbench.viz.model.typed_layout import FORMS

_FIELD = 200  # characters of an expression that a field begins with

# What expressions may use beside the user's own names.
_HELPERS = {
    **{"Layout": Layout, "Fragment": Fragment},
    **{name: getattr(algebra, name) for name in ("coalesce", "complement", "composition")},
    **{name: getattr(algebra, name) for name in ("blocked_product", "logical_divide")},
    **{name: getattr(algebra, name) for name in ("logical_product", "raked_product", "swizzle")},
    **{name: getattr(algebra, name) for name in ("left_inverse", "right_inverse")},
    **{name: getattr(atoms, name) for name in ("mma_a", "mma_b", "mma_c", "wgmma_a", "wgmma_c")},
    **{name: getattr(atoms, name) for name in ("mfma_operand", "mfma_c", "matrix_core_swizzle")},
}


@dataclass(frozen=True, slots=True)
class Playground:
    """What `playground` returns: a view in a notebook, and its layouts as data.

    Attributes:
        layout: the first input, ``A``.
        other: what the operation took beside it: a layout, numbers, or None.
        result: what the operation made; `layout` without one.
        code: the expression that gives `result` back; empty where there is no formula and a table
            would be too long.
    """

    layout: Layout | Fragment
    other: Any
    result: Layout | Fragment
    code: str
    typed: Typed = field(repr=False)
    sheets: tuple[Sheet, ...] = field(repr=False)
    names: Callable[[], dict[str, Any]] = field(repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Texts, formulas and tables as plain data: per sheet its label, shape, CuTe's text, the
        expression, and the places of all elements (offsets; threads and slots), row-major.
        """
        return {"operation": self.typed.operation, "sheets": [_plain(each) for each in self.sheets]}

    def __str__(self) -> str:
        return play_text(self.sheets)

    def __repr__(self) -> str:
        first, made = layout_line("A", self.layout), layout_line("", self.result)
        return f"{first} {self.typed.formula} = {made}" if self.typed.operation else first

    def _repr_mimebundle_(self, **_options: Any) -> Bundle:
        return playground_mimebundle(self.typed, self.sheets, self.names, repr(self), str(self))


def _plain(sheet: Sheet) -> dict[str, Any]:
    layout = sheet.layout
    row = {"label": sheet.label, "typed": sheet.typed, "shape": list(layout.shape)}
    row |= {"formula": str(layout), "cute": sheet.cute, "code": sheet.code}
    if isinstance(layout, Fragment):
        threads, slots = layout.table()
        return row | {"threads": threads.tolist(), "slots": slots.tolist()}
    return row | {"offsets": layout.table().tolist()}


def playground(
    layout: Any = "(4,(2,2)):(2,(1,8))",
    operation: str = "",
    other: Any = "",
    element_bytes: int = 2,
) -> Playground:
    """Layouts as grids, without a kernel: type one, apply an operation, paste the result back.

    `layout`, and `other` where the operation takes a second one, are layouts, or texts:

    - CuTe's shape and strides, ``"(4,(2,2)):(2,(1,8))"``; compact without strides,
    - a swizzle of one, ``"Sw<3,3,3> o (8,64):(64,1)"``,
    - an operand of an instruction, ``"mma.m16n8k16.f16 A"``, ``"ldmatrix.x4"``,
    - a Python expression, ``"T.Layout((8, 8), lambda i, j: (i, i ^ j))"``, in which your own names,
      ``Layout``, ``Fragment`` and the operations are known.

    `operation` is a name of ``compiler.layout.operations.OPERATIONS``: compose, inverse,
    right_inverse, left_inverse, complement, coalesce, divide, product, blocked_product,
    raked_product, fragment, swizzle, repeat, repeat_on_thread, replicate. `other` is what it takes:
    a layout, a number, numbers as ``"2, 1"``, or ``"<3,3,3>"``. Banks are those of elements of
    `element_bytes` (1, 2, 4, 8 or 16) bytes.

    In a notebook all of it can be typed over, and the views follow. Raises `LayoutError`, with a
    caret, for a text that is wrong and for an operation that is not defined for these inputs, and
    `ArgumentError` for what is neither layout nor text.
    """
    if element_bytes not in (1, 2, 4, 8, 16):
        message = f"element_bytes is 1, 2, 4, 8 or 16, not '{element_bytes}'"
        raise ArgumentError(message)
    given: dict[str, Any] = {}
    texts = [_text("given_A", layout, given), _text("given_B", other, given)]
    typed = Typed(texts[0], operation, texts[1], element_bytes)
    names = partial(_names, given)
    sheets, taken = read_sheets(typed, names())
    return Playground(
        sheets[0].layout, taken, sheets[-1].layout, sheets[-1].code, typed, sheets, names
    )


def _text(name: str, value: Any, given: dict[str, Any]) -> str:
    """What stands in the field for `value`; a layout without a short text gets a name."""
    if isinstance(value, str):
        return value
    if isinstance(value, Layout | Fragment):
        code = layout_expression(value)
        if code and len(code) <= _FIELD:
            return code
        given[name] = value
        return name
    if isinstance(value, int | tuple | list):
        return str(value).strip("()[]").rstrip(",")
    message = f"a playground shows layouts and their texts, not '{type(value).__name__}'"
    raise ArgumentError(message, f"pass a layout, or a text: {FORMS}")


def _names(given: Mapping[str, Any]) -> dict[str, Any]:
    """The names that expressions see now: the user's own, above ours."""
    from tileworkbench import language

    known = {**_HELPERS, "T": language, "tw": sys.modules["tileworkbench"]}
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    own = vars(sys.modules["__main__"]) if shell is None else shell.user_ns
    return {**known, **own, **given}
