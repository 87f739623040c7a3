"""Running a Program in the simulator, which is the definition of the language.

`simulate` executes a Program of any stage on numpy arrays. Tile operators are whole-tile numpy
operations, a parallel loop is one numpy operation per node of its body, blocks run one after
another in any order. Programs that say what each thread does (stage SIMT, and any that name threads
or synchronise them) run thread by thread, see `sim/threads`.

What it defines beyond the text of the IR's classes:

- Loads outside a global tensor give its safe value (zero, or the program's `safe_values`) and
  stores there are skipped; both are counted. At stages CPU and SIMT these masks are explicit, so an
  access outside a global buffer is an error there as it always is for shared and thread-private
  memory.
- Memory starts poisoned (NaN, or bytes 0xCD), and reads of elements that were never written are
  recorded.
- Two iterations of a parallel loop, or two blocks, must not write one element, nor read what
  another one writes.
- A reduction of integers is exact in the destination's dtype (it wraps); of 16-bit floats it is in
  float32, rounded once; of nothing but NaN, a maximum gives minus infinity. Contractions likewise,
  see `tiles.matmul`. A scan combines each result with the next element in the destination's dtype.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Any

import numpy as np

from tileworkbench.compiler.analysis.data_indices import unguarded_accesses
from tileworkbench.compiler.diagnostics import RunError, SimulatorLimitError, Span, interrupted
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.program import Param, Program, Stage
from tileworkbench.compiler.sim.arguments import (
    argument_array,
    check_grids,
    known_shape,
    scalar_value,
    solve_symbols,
    user_array,
)
from tileworkbench.compiler.sim.frame import Frame, SimOptions
from tileworkbench.compiler.sim.memory import Storage, allocate
from tileworkbench.compiler.sim.recorder import Recorder
from tileworkbench.compiler.sim.report import LimitReached, SimReport, located
from tileworkbench.compiler.sim.statements import StatementTranslator
from tileworkbench.compiler.sim.threads.frame import ThreadFrame
from tileworkbench.compiler.sim.threads.statements import ThreadTranslator, runs_by_threads

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class SimResult:
    """What a run left behind.

    `outputs` are the returned tensors in the program's order, `arrays` every tensor parameter by
    name after the run (the caller's own arrays are never changed).
    """

    outputs: tuple[Array, ...]
    arrays: dict[str, Array]
    report: SimReport


def simulate(
    program: Program,
    arguments: Mapping[str, Any],
    symbols: Mapping[str, int] | None = None,
    options: SimOptions | None = None,
    signature: Program | None = None,
) -> SimResult:
    """Execute `program` on `arguments`, by parameter name; parameters that are outputs are not
    passed.

    Tensors are numpy arrays (ml_dtypes for bfloat16 and the 8-bit floats; 4-bit integers packed two
    per byte in int8 or uint8, or one per element) or torch tensors on the CPU. `symbols` that are
    not given are solved from the arrays' shapes and strides. Parameters of stage CPU are flat and
    say nothing about shapes, so pass the same kernel's earlier stage as `signature`.

    Raises `ArgumentError` for arguments that do not fit, `OutOfBoundsError`, `DeviceAssertError`
    `DeadlockError` and `RunError` for what happens in the run.
    """
    options = SimOptions() if options is None else options
    with np.errstate(all="ignore"):
        described = program if signature is None else signature
        solved = solve_symbols(described, arguments, symbols)
        check_grids(described, solved)
        result = _Run(program, options).execute(arguments, solved)
    return result if signature is None else _shaped(result, signature, solved)


def _shaped(result: SimResult, signature: Program, symbols: Mapping[str, int]) -> SimResult:
    """`result` with its outputs in the shapes that `signature` gives them."""
    arrays = dict(result.arrays)
    for param in signature.params:
        if param.output and isinstance(param.value, Buffer):
            arrays[param.name] = arrays[param.name].reshape(known_shape(param.value, symbols))
    names = [signature.params[index].name for index in signature.returns]
    return SimResult(tuple(arrays[name] for name in names), arrays, result.report)


class _Run:
    """One execution: translate, bind the arguments, run, collect."""

    def __init__(self, program: Program, options: SimOptions) -> None:
        self._program, self._options = program, options
        self._threads = runs_by_threads(program)
        self._translate = (
            ThreadTranslator(program, options.trace, options.observers)
            if self._threads
            else StatementTranslator(sources=program.sources, observers=options.observers)
        )
        if program.stage not in (Stage.CPU, Stage.SIMT):  # where guards are predicates
            self._translate.expr.unguarded = unguarded_accesses(program)
        self._body = self._translate(program.body)

    def execute(self, arguments: Mapping[str, Any], symbols: Mapping[str, int]) -> SimResult:
        program = self._program
        safe = {name: self._translate.expr(value) for name, value in program.safe_values}
        shapes = {param.name: self._shape(param) for param in program.params}
        scalars = [
            (self._translate.slots.variable(var), symbols[var.name]) for var in program.symbols
        ]
        frame = self._frame()
        for slot, value in scalars:
            frame.values[slot] = value
        for param in program.params:
            if not isinstance(param.value, Buffer):
                frame.values[self._translate.slots.variable(param.value)] = scalar_value(
                    param.value, arguments
                )
        for observer in self._options.observers:
            observer.prepared(program, self._translate.slots)
        for param in program.params:
            if isinstance(param.value, Buffer):
                extents = tuple(extent(frame) for extent in shapes[param.name])
                storage = self._bind(param, extents, arguments)
                if param.name in safe:
                    storage.safe = safe[param.name](frame)
                for observer in self._options.observers:
                    observer.bound(storage)
                if isinstance(self._translate, ThreadTranslator):
                    storage = self._translate.bind(param.value, storage)
                frame.storages[self._translate.slots.buffer(param.value)] = storage
        if self._options.seconds is not None:
            frame.recorder.deadline = perf_counter() + self._options.seconds
        if self._options.most_statements is not None:
            frame.recorder.statements_left = self._options.most_statements + 1
        try:
            self._body(frame)
        except LimitReached:
            pass
        except RunError as error:
            report = frame.recorder.report()
            if not report.ok:
                error.add_note(f"found before this: {report}")
            raise
        except KeyboardInterrupt:
            raise interrupted(program.name, self._place(frame)) from None
        except (MemoryError, ValueError) as error:
            if isinstance(error, ValueError) and "too big" not in str(error):
                raise
            what = "the simulator keeps all elements of this statement at once: they are too many"
            raise located(SimulatorLimitError, what, program.span(frame.site)) from None
        return self._result(frame, arguments)

    def _place(self, frame: Frame) -> Span | None:
        """The line at which the run is."""
        site = frame.recorder.interrupted_at
        return self._program.span(frame.site if site is None else site)

    def _shape(self, param: Param) -> tuple[Any, ...]:
        return (
            self._translate.expr.all(param.value.shape) if isinstance(param.value, Buffer) else ()
        )

    def _frame(self) -> Frame:
        slots, options = self._translate.slots, self._options
        for param in self._program.params:
            if isinstance(param.value, Buffer):
                slots.buffer(param.value)
            else:
                slots.variable(param.value)
        unset: list[Any] = [None] * len(slots.buffers)
        kind = ThreadFrame if self._threads else Frame
        return kind(
            values=[None] * len(slots.variables),
            storages=unset,
            recorder=Recorder(
                self._program, options.stop_at_out_of_bounds, observers=options.observers
            ),
            options=options,
            observers=options.observers,
            registers_watched=any(observer.of_registers for observer in options.observers),
            strict=self._program.stage is Stage.CPU,
            arena=np.zeros(self._program.scratch_bytes, np.uint8),
            random=None if options.seed is None else np.random.default_rng(options.seed),
        )

    def _bind(self, param: Param, shape: tuple[int, ...], arguments: Mapping[str, Any]) -> Storage:
        buffer = param.value
        if not isinstance(buffer, Buffer):
            raise TypeError(f"'{param.name}' is not a tensor")
        guarded = self._program.stage not in (Stage.CPU, Stage.SIMT)
        if param.output:
            storage = allocate(buffer, shape)
            storage.guarded = guarded
            return storage
        return Storage(
            buffer, argument_array(param.name, buffer, shape, arguments), guarded=guarded
        )

    def _result(self, frame: Frame, arguments: Mapping[str, Any]) -> SimResult:
        arrays: dict[str, Array] = {}
        for param in self._program.params:
            if isinstance(param.value, Buffer):
                storage = frame.storages[self._translate.slots.buffer(param.value)]
                arrays[param.name] = user_array(
                    storage.data, param.value, arguments.get(param.name)
                )
        names = [self._program.params[index].name for index in self._program.returns]
        recorder = frame.recorder
        if isinstance(frame, ThreadFrame):
            recorder.accesses = frame.counters.accesses(self._program)
            recorder.instructions = frame.counters.instructions()
            recorder.barriers = frame.counters.barriers
        return SimResult(tuple(arrays[name] for name in names), arrays, recorder.report())


__all__ = ["SimOptions", "SimReport", "SimResult", "simulate", "solve_symbols"]
