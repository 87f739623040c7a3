"""`tw.predict`, `tw.suggest`: times of kernels that nobody has run, and configurations by them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from tileworkbench.api import Jit, compile, jit, prim_func_of
from tileworkbench.bench.parts import NOTHING_WASTED, Causes
from tileworkbench.bench.units import format_bytes, format_percent, format_time
from tileworkbench.compiler.diagnostics import ArgumentError, UnsupportedError
from tileworkbench.compiler.driver import resolve_target
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.target import parse_target
from tileworkbench.kernels.tiles import Tiles
from tileworkbench.tuning.sweep import Sweep, SweepPoint, sweep
from tileworkbench.tuning.table import MARK, text_table
from tileworkbench.viz.model import html
from tileworkbench.workbench.kernel import Kernel
from tileworkbench.workbench.plain import frame_of

# What is tried for arguments of these names where the caller does not say: tiles that fill vectors
# of a processor, or tensor cores of a GPU.
_TILES = re.compile(r"block_?[A-Za-z]\w*|[bB][MN]")
_DEPTHS = re.compile(r"block_?[kK]\w*|[bB]K")
_SHOWN = 10  # configurations, before one clicks for more
_SPACES: dict[str, tuple[tuple[re.Pattern[str], tuple[int, ...]], ...]] = {
    "cpu": ((_DEPTHS, (32, 128)), (_TILES, (32, 64, 128))),
    "gpu": (
        (_DEPTHS, (32, 64)),
        (_TILES, (64, 128, 256)),
        (re.compile("num_stages"), (2, 3, 4)),
        (re.compile("threads"), (128, 256)),
    ),
}


def predict(program: Any, machine: str | None = None) -> Causes:
    """The predicted time of a launch by cause and line; nothing is run.

    Args:
        program: a `Kernel`, or what `tw.compile` takes.
        machine: a target ("cpu", "cuda:sm_90a") or an architecture ("sm_90a", "gfx942"); None is
            the kernel's own target, else this processor.

    On a CPU the prediction rests on its measured ceilings and times of operations, which the first
    use on a machine takes seconds for; on a GPU on published numbers, so that it is simulated only.
    `total_ms` is all of it. Raises `UnsupportedError` for symbolic shapes and for a GPU without
    published numbers.
    """
    kernel = program if isinstance(program, Kernel) else None
    if kernel is None or machine is not None:
        target = _lowered_only(machine or "cpu")
        kernel = compile(prim_func_of(kernel) if kernel is not None else program, target=target)
    causes = kernel.causes
    if causes is None:
        raise UnsupportedError(
            f"there is no prediction for '{kernel.name}' on '{kernel.target}'",
            hint="shapes must be numbers, and a GPU one whose rates are published",
        )
    return causes


@dataclass(frozen=True, slots=True)
class Suggestion:
    """One configuration that compiles.

    Attributes:
        config: the constants.
        predicted_ms: the predicted time of a launch.
        limit: the cause that has most of it, and `share` its part.
        why: the line to look at, as a sentence.
        shared_bytes: shared memory of a block, 0 on a CPU.
        registers: most words of tiles that a thread of a GPU holds at once, 0 on a CPU.
        occupancy: warps held over warps that could be, None on a CPU.
        conflicts: wavefronts of shared memory beyond the fewest possible.
    """

    config: Mapping[str, Any]
    predicted_ms: float
    limit: str
    share: float
    why: str
    shared_bytes: int
    registers: int
    occupancy: float | None
    conflicts: int


@dataclass(frozen=True, slots=True)
class Suggestions:
    """Configurations of a kernel, the one that is predicted to be the fastest first; `refused` are
    those that do not compile, with the reason. `model` says what the predictions rest on, `default`
    what a kernel of the library has for the target where nobody says.
    """

    name: str
    target: str
    ranked: tuple[Suggestion, ...]
    refused: tuple[tuple[Mapping[str, Any], str], ...]
    model: str = ""
    interrupted: bool = False
    default: Tiles | None = None

    @property
    def configs(self) -> list[dict[str, Any]]:
        """The configurations, best first, as `tw.autotune` takes them."""
        return [dict(each.config) for each in self.ranked]

    def to_dict(self) -> list[dict[str, Any]]:
        """A flat row for each configuration, the best first; then those that are refused."""
        rows = []
        for each in self.ranked:
            facts = asdict(each)
            rows.append({**facts.pop("config"), **facts, "error": ""})
        return rows + [{**config, "error": error} for config, error in self.refused]

    def to_frame(self) -> Any:
        """A ``pandas.DataFrame`` of `to_dict`. Raises `UnsupportedError` without pandas."""
        return frame_of(self.to_dict())

    def __str__(self) -> str:
        if not self.ranked:
            head = f"no configuration of '{self.name}' compiles for {self.target}"
            return "\n".join([head, *self._refusals()])
        count = [f"{len(self.refused)} refused:"] if self.refused else []
        lines = text_table(*self._table())
        return "\n".join([*lines, *self._notes(), *count, *self._refusals()])

    def __repr__(self) -> str:
        best = f" | best {_said(self.configs[0])}" if self.ranked else ""
        counts = f"{len(self.ranked)} ranked, {len(self.refused)} refused"
        return f"<suggestions for {self.name} {self.target} | {counts}{best}>"

    def _repr_html_(self) -> str:
        heads, rows = self._table()
        style = "white-space:nowrap"
        cells = [[html.tag("span", style, html.text(cell)) for cell in row] for row in rows]
        if cells:
            best = f"{html.tone(html.GOOD)};font-weight:bold;{style}"
            cells[0] = [html.tag("span", best, html.text(cell)) for cell in rows[0]]
        parts = [html.tag("b", html.MONO, html.text(f"{self.name} {self.target}"))]
        parts.append(html.table(cells[:_SHOWN], heads))
        if len(cells) > _SHOWN:
            parts.append(
                html.details(f"{len(cells) - _SHOWN} more", html.table(cells[_SHOWN:], heads))
            )
        if self.refused:
            reasons = [
                [html.tag("span", style, html.text(_said(config))), html.text(error)]
                for config, error in self.refused
            ]
            parts.append(html.details(f"{len(self.refused)} refused", html.table(reasons)))
        parts += [html.tag("div", html.FAINT, html.text(note)) for note in self._notes()]
        return html.panel(*parts)

    def _table(self) -> tuple[list[str], list[list[str]]]:
        on_gpu = any(each.occupancy is not None for each in self.ranked)
        names = list(self.ranked[0].config) if self.ranked else []
        more = ["shared", "registers", "occupancy", "conflicts"] if on_gpu else []
        rows = []
        for each in self.ranked:
            row = [MARK if each is self.ranked[0] else ""]
            row += [str(each.config[name]) for name in names]
            row += [
                format_time(1e3 * each.predicted_ms),
                f"{each.limit} {format_percent(each.share)}",
            ]
            if on_gpu:
                row += [format_bytes(each.shared_bytes), str(each.registers)]
                row += [format_percent(each.occupancy or 0), str(each.conflicts)]
            rows.append(row)
        return ["", *names, "predicted", "most time", *more], rows

    def _notes(self) -> list[str]:
        notes = [f"the first: {self.ranked[0].why}"] if self.ranked else []
        notes += [f"predicted by {self.model}"] if self.model else []
        notes += [self._default_note(self.default)] if self.default else []
        if self.interrupted:
            notes.append("interrupted: the rest was not tried")
        return notes

    def _refusals(self) -> list[str]:
        """Why the others are refused, the first ones in full."""
        lines = [f"{_said(config)}: {error}" for config, error in self.refused[:_SHOWN]]
        more = len(self.refused) - _SHOWN
        return [*lines, f"and {more} more, see 'refused'"] if more > 0 else lines

    def _default_note(self, default: Tiles) -> str:
        """Where the library's default stands among these."""
        for place, each in enumerate(self.ranked, 1):
            if all(each.config.get(name, size) == size for name, size in default.sizes.items()):
                ratio = each.predicted_ms / self.ranked[0].predicted_ms
                here = f"here number {place}, {ratio:.2f} times the first"
                return f"the library's default: {default}; {here}"
        return f"the library's default: {default}; not among these"


def suggest(
    function: Any,
    target: str | None = None,
    axes: Mapping[str, Sequence[Any]] | None = None,
    *,
    constants: Mapping[str, Any] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Suggestions:
    """Configurations of a kernel that compile for a target, ranked by their predicted times.

    Args:
        function: a `tw.jit` function, or one that returns a `T.prim_func`.
        target: what to compile for, also "sm_90a" or "gfx942" without such a GPU; None is the
            function's own.
        axes: compile-time arguments to the values that are tried. None: block sizes, depths, stages
            and threads by their names, with values that are usual on the target.
        constants: what else a compilation needs, such as shapes.
        progress: called with (configurations done, configurations in all).

    Nothing is run. A configuration is refused for what its compilation says (too much shared
    memory, too many threads, tiles that no instruction takes), and for tiles that take more
    registers than a thread has. Raises `ArgumentError` as `tw.sweep` does, and `UnsupportedError`
    where nothing could be predicted.
    """
    made: Jit = function if isinstance(function, Jit) else jit(function)
    chosen = _lowered_only(target) if target is not None else made.target
    made = made.with_target(chosen)
    space = dict(axes) if axes is not None else _usual(made, chosen, dict(constants or {}))
    tried = sweep(made, space, constants=constants, progress=progress)
    ranked, refused, model = _ranked(tried)
    if len(refused) < len(tried.points) and not ranked:
        raise UnsupportedError(
            f"there is no prediction for '{made.fn.__name__}' on '{tried.target}'",
            hint="shapes must be numbers, and a GPU one whose rates are published",
        )
    tiles = getattr(made.fn, "tiles", None)
    default = tiles if isinstance(tiles, Tiles) and tiles.sizes else None
    facts = ranked, refused, model, tried.interrupted, default
    named = tried.target or str(resolve_target(chosen or "auto"))
    return Suggestions(made.fn.__name__, named, *facts)


def _ranked(
    tried: Sweep,
) -> tuple[tuple[Suggestion, ...], tuple[tuple[Mapping[str, Any], str], ...], str]:
    """What is predicted, the fastest first; what is refused, and why; what the model rests on."""
    refused = [(point.config, point.error) for point in tried.points if point.error]
    ranked: list[Suggestion] = []
    model = ""
    for point in tried.points:
        causes = None if point.kernel is None or point.error else point.kernel.causes
        if point.kernel is None or causes is None:
            continue
        made, model = _suggestion(point, point.kernel, causes), causes.model
        most = _thread_registers(point.kernel)
        if made.registers > most:
            words = f"{made.registers} registers of a thread, which has {most}"
            refused.append((point.config, f"its tiles take {words}"))
        else:
            ranked.append(made)
    ranked.sort(key=lambda each: each.predicted_ms)
    return tuple(ranked), tuple(refused), model


def _said(config: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in config.items())


def _thread_registers(kernel: Kernel) -> int:
    target = parse_target(kernel.target)
    return sys.maxsize if target.kind == "cpu" else target.machine.thread_registers


def _suggestion(point: SweepPoint, kernel: Kernel, causes: Causes) -> Suggestion:
    limit, time_us = next(iter(causes.by_cause().items()), ("nothing", 0.0))
    total = causes.total_us
    is_on_gpu = point.occupancy == point.occupancy
    return Suggestion(
        point.config,
        total / 1e3,
        limit,
        time_us / total if total else 0.0,
        causes.diagnose().text.removeprefix(NOTHING_WASTED).strip(),
        point.shared_bytes if is_on_gpu else 0,
        max((cost.registers for cost in kernel.line_costs), default=0) if is_on_gpu else 0,
        point.occupancy if is_on_gpu else None,
        point.conflicts,
    )


def _lowered_only(machine: str) -> str:
    """The target that compiles for a machine without needing it."""
    target = parse_target(machine)
    return machine if target.kind == "cpu" or target.is_simulated else f"sim:{target.arch}"


def _usual(made: Jit, target: str | None, constants: Mapping[str, Any]) -> dict[str, Sequence[Any]]:
    """The usual values of a function's arguments that are named as tiles are."""
    kind = "cpu" if target is None or parse_target(target).kind == "cpu" else "gpu"
    axes: dict[str, Sequence[Any]] = {}
    for name in made.signature.parameters:
        values = (values for pattern, values in _SPACES[kind] if pattern.fullmatch(name))
        if name not in constants and (usual := next(values, None)) is not None:
            axes[name] = usual
    if not axes:
        raise ArgumentError(
            f"no argument of '{made.fn.__name__}' is named as a tile size is",
            "name the values to try, as in axes={'rows': [32, 64]}",
        )
    return axes
