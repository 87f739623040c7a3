"""What the functions of one LLVM module share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field

from tileworkbench.compiler.analysis.effects import constant_buffers, packed_tiles
from tileworkbench.compiler.analysis.quiet import QuietFloats
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.analysis.streaming import Ahead, fetched_loads, streamed_buffers
from tileworkbench.compiler.emit.llvm.isa import Isa
from tileworkbench.compiler.emit.llvm.text import EmittedFunction
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.expr import Buffer, Load
from tileworkbench.compiler.ir.program import Program


@dataclass(slots=True)
class ModuleState:
    """Helper functions, string constants and assertions so far, and facts about the program.

    Packing tells the smallest exponent of the panels that are `told`.
    """

    program: Program
    isa: Isa
    ranges: Ranges
    streamed: frozenset[Buffer]
    fetched: Mapping[Load, Ahead]
    constant: frozenset[Buffer]
    packed: frozenset[Buffer]
    quiet: QuietFloats
    told: frozenset[Buffer] = frozenset()
    functions: dict[str, EmittedFunction] = field(default_factory=dict)
    assertions: list[tuple[str, int]] = field(default_factory=list)
    shows_value: bool = False  # some assertion has a value
    texts: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, program: Program, isa: Isa) -> ModuleState:
        """The state before anything is written."""
        streamed = frozenset(streamed_buffers(program))
        constant, packed = constant_buffers(program.body), packed_tiles(program.body)
        ranges = Ranges(program)
        fetched = fetched_loads(program, constant, ranges, isa.near_rows)
        quiet = QuietFloats.of(program.body)
        return cls(program, isa, ranges, streamed, fetched, constant, packed, quiet)

    def text_constant(self, text: str) -> str:
        """The name of a constant with the bytes of `text` and a final zero."""
        data = text.encode() + b"\0"
        escaped = "".join(f"\\{byte:02X}" for byte in data)
        name = f"@text_{len(self.texts)}"
        self.texts.append(f'{name} = private constant [{len(data)} x i8] c"{escaped}"')
        return name

    def shared_function(self, key: str, emit: Callable[[str], EmittedFunction]) -> str:
        """The name of a function that equal specifications share within the module."""
        if key not in self.functions:
            self.functions[key] = emit(f"{key.split('(')[0].lower()}_{len(self.functions)}")
        return self.functions[key].name
