"""Layouts and fragments: where elements live in memory, and in which thread's registers.

- `Layout`: logical index -> physical index (shared memory swizzles, padding, packed panels).
- `Fragment`: index and replica -> thread and slot, with the primitives of the paper's Figure 6.
- `contains`: whether the owners of elements under one fragment own them under another.
- `atoms`: the fragments of tensor-core instructions.
- `algebra`, `cute`: the operations of CuTe's algebra, and its texts; `operations`: all by name.
- `expression`: a layout as `T.Layout(...)`.
"""

from .contain import contains
from .digits import Digit, DigitSum, Term
from .fragment import Fragment
from .layout import Layout

__all__ = ["Digit", "DigitSum", "Fragment", "Layout", "Term", "contains"]
