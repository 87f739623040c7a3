"""What is known of a compiled kernel without running it: `KernelFacts`, a part of `Kernel`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, TypeVar, overload

from tileworkbench.compiler.compilation import CompiledKernel
from tileworkbench.compiler.diagnostics import ArgumentError, Note
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.printer import print_expr
from tileworkbench.compiler.ir.program import Program, Stage
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.stmt import Alloc
from tileworkbench.compiler.ir.stmt import Kernel as Grid
from tileworkbench.compiler.record import Count, Timing
from tileworkbench.workbench.pipelining import PipelineFacts
from tileworkbench.workbench.replays import ReplayFacts
from tileworkbench.workbench.results import BufferLayout
from tileworkbench.workbench.snapshots import Passes

if TYPE_CHECKING:
    from tileworkbench.bench.time_model import Prediction
    from tileworkbench.compiler.analysis.cost import Work
    from tileworkbench.compiler.analysis.occupancy import Occupancy
    from tileworkbench.compiler.device.nvidia.nvrtc import KernelResources
    from tileworkbench.compiler.layout import Fragment, Layout
    from tileworkbench.compiler.schedule.shared_memory import SharedMemory
    from tileworkbench.compiler.sim.report import AccessCount
    from tileworkbench.compiler.sim.threads.listing import Unlisted
    from tileworkbench.compiler.sim.threads.requests import WarpAccess
    from tileworkbench.compiler.sim.vector_requests import VectorAccess
    from tileworkbench.workbench.accesses import GlobalAccess

Fact = TypeVar("Fact")


@dataclass(slots=True)
class LastPrediction:
    """What was predicted last, and what it was made with: views ask for the same several times."""

    given: tuple[object, ...] = ()
    prediction: Prediction | None = None


@dataclass(frozen=True, slots=True)
class Stats:
    """Static facts of one compilation. Bytes are of one launch over global memory.

    `flops` and `bytes_` have a value and the formula it comes from; the value is NaN for symbolic
    shapes. `shared_bytes` is the shared memory of a block: on a GPU what it is launched with, on a
    CPU what it allocates as written. `scratch_bytes` is a CPU worker's arena. `resources` are the
    registers and spills of each CUDA function, where NVRTC has compiled it. `timings` are the steps
    of the compilation. By `estimated_ns`, nanoseconds on one core of a CPU, a launch that is too
    short for several cores stays on its caller's.
    """

    flops: Count
    bytes_: Count
    shared_bytes: int
    scratch_bytes: int
    timings: tuple[Timing, ...]
    resources: tuple[KernelResources, ...] = ()
    estimated_ns: float | None = None
    lowered: Program | None = field(default=None, repr=False, compare=False)
    file: str = field(default="", repr=False, compare=False)
    last: LastPrediction | None = field(default=None, repr=False, compare=False)

    @property
    def predicted(self) -> Prediction:
        """The time that a model expects of a call, by what it is spent on; nothing is run.

        The first use on a machine measures its ceilings and what operations cost, which takes
        seconds. Raises `ArgumentError` for symbolic shapes and for targets other than `cpu`.
        """
        from tileworkbench.bench.ceilings import machine
        from tileworkbench.bench.memory_rates import memory_rates
        from tileworkbench.bench.operation_probes import operation_rates
        from tileworkbench.bench.time_model import predict_time, refuse_unknown
        from tileworkbench.compiler.device.host.launch import is_worth_several
        from tileworkbench.compiler.device.host.threads import get_num_threads

        if self.lowered is None:
            raise ArgumentError("a kernel that no pass of 'cpu' has lowered has no predicted time")
        refuse_unknown(self.lowered)
        threads = get_num_threads() if is_worth_several(self.estimated_ns) else 1
        ceilings = machine()
        rates = operation_rates(), memory_rates()
        last, given = self.last or LastPrediction(), (threads, ceilings, *rates)
        if last.prediction is None or last.given != given:
            last.prediction = predict_time(self.lowered, ceilings, threads, self.file, *rates)
            last.given = given
        return last.prediction

    @property
    def intensity(self) -> float:
        """FLOP per byte of compulsory traffic."""
        return self.flops.value / self.bytes_.value if self.bytes_.value else float("inf")


class gpu_property(cached_property[Fact]):
    """A fact that kernels for a GPU have; kernels for a CPU have no such attribute."""

    @overload
    def __get__(self, kernel: None, owner: type[Any] | None = None) -> gpu_property[Fact]: ...
    @overload
    def __get__(self, kernel: Any, owner: type[Any] | None = None) -> Fact: ...
    def __get__(self, kernel: Any, owner: type[Any] | None = None) -> gpu_property[Fact] | Fact:
        if kernel is not None and not kernel.is_for_gpu:
            raise AttributeError(
                f"'{kernel.name}' is compiled for '{kernel.target}', and only kernels for a GPU "
                f"have '{self.attrname}': compile it for 'cuda:sm_80', 'ptx:sm_80' or 'sim:sm_80'"
            )
        fact: gpu_property[Fact] | Fact = super().__get__(kernel, owner)
        return fact


class KernelFacts(PipelineFacts, ReplayFacts):
    """The part of a `Kernel` that tells what the compiler made of it."""

    _compiled: CompiledKernel

    def __dir__(self) -> list[str]:
        names = list(super().__dir__())
        if self.is_for_gpu:
            return names
        own = type(self)
        return [name for name in names if not isinstance(getattr(own, name, 0), gpu_property)]

    @property
    def is_for_gpu(self) -> bool:
        """Whether it is compiled for a GPU, real or simulated."""
        return self._compiled.target.kind != "cpu"

    @property
    def compiled(self) -> CompiledKernel:
        """What the compiler made: code and a call, without views."""
        return self._compiled

    @property
    def name(self) -> str:
        """The function's name."""
        return self._compiled.record.name

    @property
    def target(self) -> str:
        """The target it was compiled for."""
        return self._compiled.record.target

    @property
    def record(self) -> Any:
        """The `CompileRecord`: everything about the compilation as plain data."""
        return self._compiled.record

    @property
    def program(self) -> Program:
        """The front end's program; `print` shows it as text."""
        return self._compiled.record.program

    @cached_property
    def grid(self) -> tuple[int | str, ...]:
        """Blocks along x, y, z of the first launch; text where they depend on a symbol."""
        launch = self._launch()
        if launch is None:
            return ()
        numbers = [(const_int(extent), extent) for extent in launch.grid]
        return tuple(print_expr(e) if number is None else number for number, e in numbers)

    @property
    def threads(self) -> int:
        """Threads of a block as it is launched: with those that `specialize_warps` adds."""
        snapshots = self._compiled.record.snapshots
        on_gpu = snapshots and self.is_for_gpu
        launch = _launch(snapshots[-1].program if on_gpu else self.program)
        return prod(launch.threads) if launch else 1

    def _launch(self) -> Grid | None:
        return _launch(self.program)

    @property
    def assumes(self) -> tuple[str, ...]:
        """What a variant assumes, such as ``N % 8 == 0``; () for a kernel of its own."""
        return self._compiled.record.facts

    @cached_property
    def passes(self) -> Passes:
        """One snapshot per pass."""
        return Passes(self._compiled.record)

    @cached_property
    def layouts(self) -> Mapping[str, Layout | Fragment]:
        """The layout of every shared buffer and fragment, by buffer name."""
        return {buffer.name: buffer.layout for buffer in self._buffer_layouts}

    @cached_property
    def _buffer_layouts(self) -> tuple[BufferLayout, ...]:
        from tileworkbench.compiler.analysis.atoms import find_atoms

        planned = [s for s in self._compiled.record.snapshots if s.program.stage is Stage.PLANNED]
        if not planned:
            return ()
        banked = self._compiled.target.kind != "cpu"
        laid_out = [b for b in _allocated(planned[0].program) if b.layout is not None]
        layouts = {buffer.name: buffer.layout for buffer in laid_out if buffer.layout is not None}
        programs = [snapshot.program for snapshot in planned]
        atoms = find_atoms(programs, layouts, self._compiled.target.arch)
        return tuple(
            BufferLayout(
                buffer.name,
                layouts[buffer.name],
                _role(buffer),
                buffer.dtype.bytes,
                banked,
                atoms.get(buffer.name, ()),
            )
            for buffer in laid_out
        )

    @cached_property
    def accesses(self) -> tuple[GlobalAccess | AccessCount, ...]:
        """How the lowered code uses memory, access by access, with its line.

        On the CPU: bytes at once and pattern of accesses to tensors. For a GPU: wavefronts of
        shared memory and sectors of global memory against the least that would do, for one block
        and one iteration of each loop that is not unrolled.
        """
        from tileworkbench.workbench.accesses import accesses_of

        return accesses_of(self.passes[-1].program, self.requests)

    @property
    def requests(self) -> tuple[WarpAccess, ...] | tuple[VectorAccess, ...]:
        """The byte addresses behind `accesses`.

        For a GPU a `WarpAccess` per entry of `accesses`, in the same order: what each thread of a
        block accesses, the phases in which shared memory serves it, with bank, word, degree and who
        collides with whom, and the sectors of global memory. On the CPU a `VectorAccess` per access
        to a tensor or tile: the lanes of its first vectors and the cache lines they touch. Each has
        `to_dict()`.
        """
        return self._listed[0]

    @property
    def unlisted(self) -> tuple[Unlisted, ...]:
        """The accesses of a GPU kernel that `accesses` and `requests` cannot have, since their
        addresses depend on what is read from memory; each with its line and the reason.
        """
        return self._listed[1]

    @cached_property
    def _listed(
        self,
    ) -> tuple[tuple[WarpAccess, ...] | tuple[VectorAccess, ...], tuple[Unlisted, ...]]:
        from tileworkbench.workbench.accesses import requests_of

        return requests_of(self.passes[-1].program)

    @cached_property
    def shared_memories(self) -> tuple[SharedMemory, ...]:
        """The shared memory of a block of each launch that has any: buffers with their bytes,
        places and lifetimes, and what other numbers of pipeline stages would need. On the CPU it is
        that of the kernel as written.
        """
        from tileworkbench.compiler.schedule.shared_memory import shared_memories

        by_name = {each.name: each.program for each in self._compiled.record.snapshots}
        placed = by_name.get("plan_shared_memory")
        if placed is None:
            return shared_memories(self.program)
        return shared_memories(placed, by_name.get("infer_thread_layouts"))

    @property
    def shared_memory(self) -> SharedMemory | None:
        """The first of `shared_memories`, None for a kernel without any."""
        return next(iter(self.shared_memories), None)

    @property
    def occupancy(self) -> Occupancy | None:
        """How many blocks one multiprocessor of the target holds at once, what limits that and what
        would help. None on the CPU. Registers count where NVRTC has compiled the kernel.
        """
        from tileworkbench.compiler.analysis.occupancy import occupancy

        registers = [function.registers for function in self._compiled.needs.functions]
        target, shared = self._compiled.target, self._compiled.needs.shared_bytes
        return occupancy(target.arch, self.threads, shared, max(registers, default=None))

    @property
    def source(self) -> str:
        """The generated text (LLVM IR on cpu)."""
        return self._compiled.record.code

    def get_kernel_source(self, kernel_only: bool = True) -> str:
        """The same as `source`: there is no text of a host, whatever `kernel_only` is."""
        return self.source

    @cached_property
    def asm(self) -> str:
        """The machine's assembly text: PTX for CUDA, the GPU's own instructions for HIP."""
        return self._compiled.texts["asm"]()

    @property
    def isa(self) -> str:
        """The instructions of the machine itself: for an AMD GPU and a processor the same text as
        `asm`, for an NVIDIA GPU `sass`, because PTX is no machine's.

        Raises `UnsupportedError` where the compiler is missing that `asm` or `sass` needs.
        """
        return self._compiled.texts["isa"]()

    @gpu_property
    def sass(self) -> str:
        """The instructions of an NVIDIA device under the lines of the kernel that they come from.

        Only kernels for a GPU have it. Raises `UnsupportedError` without NVRTC and nvdisasm (the
        extra `cuda`).
        """
        return self._compiled.texts["sass"]()

    @cached_property
    def _work(self) -> Work:
        from tileworkbench.compiler.analysis.cost import count_work

        return count_work(self.program)

    @property
    def stats(self) -> Stats:
        """Operations, traffic, memory and compile times."""
        work, compiled, needs = self._work, self._compiled, self._compiled.needs
        snapshots = compiled.record.snapshots
        lowered = snapshots[-1].program if snapshots and compiled.target.kind == "cpu" else None
        return Stats(
            flops=work.flops,
            bytes_=work.bytes_,
            shared_bytes=needs.shared_bytes,
            scratch_bytes=needs.scratch_bytes,
            timings=compiled.record.timings,
            resources=needs.functions,
            estimated_ns=needs.estimated_ns,
            lowered=lowered,
            file=compiled.record.source_file,
            last=self._last_prediction,
        )

    @cached_property
    def _last_prediction(self) -> LastPrediction:
        return LastPrediction()

    @property
    def warnings(self) -> tuple[Note, ...]:
        """What is certainly wrong although it compiles, each with its place: tiles read before they
        are written, indices out of range, writes that conflict. `simulate` finds the rest.
        """
        return self._compiled.record.warnings

    @gpu_property
    def resources(self) -> tuple[KernelResources, ...]:
        """Registers and spills of each function, which NVRTC compiles for it.

        Only kernels for a GPU have it. Raises `UnsupportedError` without NVRTC (the extra `cuda`).
        """
        if not self._compiled.needs.functions:
            self._compiled.texts["asm"]()  # what NVRTC has compiled is known
        return self._compiled.needs.functions


def _launch(program: Program) -> Grid | None:
    return next((stmt for stmt in statements(program.body) if isinstance(stmt, Grid)), None)


def _allocated(program: Program) -> list[Buffer]:
    """The tiles a block allocates, in order."""
    scopes = ("shared", "local.fragment")
    allocated = [stmt.buffer for stmt in statements(program.body) if isinstance(stmt, Alloc)]
    return [buffer for buffer in allocated if buffer.scope in scopes]


def _role(buffer: Buffer) -> str:
    scope = "fragment" if buffer.scope == "local.fragment" else buffer.scope
    return f"{scope} {buffer.dtype} {'x'.join(print_expr(extent) for extent in buffer.shape)}"
