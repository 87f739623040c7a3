"""What TileLang and TVM call a target, as one of ours and a note where they are not the same."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from tileworkbench.compat.threads import without_threads
from tileworkbench.compiler.diagnostics import DeviceUnavailableError, TileTypeError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.program import Program

_DEVICES = frozenset({"cuda", "hip", "rocm", "metal", "webgpu", "cutedsl"})
_WITHOUT_THREADS = frozenset({"c", "llvm"})
_HOSTS = _WITHOUT_THREADS | {"cpu", "auto"}

_entered: ContextVar[tuple[Target, ...]] = ContextVar("targets", default=())


class TargetKind(str):
    """The kind of a target: ``cuda``, ``llvm``; its `name` is itself."""

    __slots__ = ()

    @property
    def name(self) -> str:
        return str(self)


class Target:
    """`tvm.target.Target`: what to compile for, from text such as ``cuda -arch=sm_90`` or ``llvm``,
    a dictionary with a ``kind``, or another target. `with target:` makes it the one that
    ``auto`` means.

    Raises `TileTypeError` for anything else.
    """

    def __init__(self, target: Any, host: Any = None) -> None:
        self.host = host
        if isinstance(target, Target):
            words, options = target.kind.name, dict(target.attrs)
        elif isinstance(target, Mapping) and "kind" in target:
            words, options = str(target["kind"]), {k: v for k, v in target.items() if k != "kind"}
        elif isinstance(target, str) and target.split():
            words, *flags = target.split()
            options = dict(re.findall(r"-{1,2}([\w-]+)=(\S+)", " ".join(flags)))
        else:
            raise TileTypeError(f"a target is text or a dictionary with a 'kind', not {target!r}")
        self.kind: TargetKind = TargetKind(words)
        self.attrs: dict[str, Any] = options

    @property
    def arch(self) -> str | None:
        """The architecture, such as ``sm_90``; None where the target has none."""
        arch = self.attrs.get("arch")
        return None if arch is None else str(arch)

    @property
    def keys(self) -> tuple[str, ...]:
        """What the target belongs to."""
        return (str(self.kind), "gpu") if self.kind in _DEVICES else ("cpu",)

    @staticmethod
    def current(allow_none: bool = True) -> Target | None:
        """The target of the innermost `with`. Raises `TileTypeError` where there must be one."""
        entered = _entered.get()
        if not entered and not allow_none:
            raise TileTypeError("no target is current", hint="write it in 'with Target(...):'")
        return entered[-1] if entered else None

    def __enter__(self) -> Target:
        _entered.set((*_entered.get(), self))
        return self

    def __exit__(self, *_: object) -> None:
        _entered.set(_entered.get()[:-1])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Target) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        return " ".join([self.kind, *(f"-{name}={value}" for name, value in self.attrs.items())])

    def __repr__(self) -> str:
        return f"Target({str(self)!r})"


def determine_target(target: Any = "auto", return_object: bool = False) -> Any:
    """The target that `target` means: that of the innermost `with` for ``auto``, else that of the
    CUDA device, else this processor (``cpu``). Text is returned as it is unless `return_object`.
    """
    if target is None or target == "auto":
        target = Target.current() or _machine()
    return Target(target) if return_object or not isinstance(target, str) else target


def _machine() -> Target:
    from tileworkbench.compiler.device.nvidia.driver import missing_device, open_device

    return Target("cpu" if missing_device() else f"cuda -arch={open_device().arch}")


def get_target_compute_version(target: Any = None) -> str:
    """The compute capability of a target as text, ``9.0`` for ``sm_90a``.

    Raises `DeviceUnavailableError` for a target without one, such as a processor.
    """
    resolved = determine_target(target, return_object=True)
    digits = re.fullmatch(r"sm_(\d+)(\d)[a-z]?", resolved.arch or "")
    if digits is None:
        raise DeviceUnavailableError(
            f"the target '{resolved}' has no compute capability",
            hint="name the GPU that the code is written for: with "
            "tvm.target.Target('cuda -arch=sm_80'): ...; it runs where the tensors are",
        )
    return f"{digits[1]}.{digits[2]}"


def parse_compute_version(compute_version: str) -> tuple[int, int]:
    """The two numbers of a compute capability: (9, 0) for ``9.0``."""
    major, _, minor = compute_version.partition(".")
    return int(major), int(minor)


def target_is(*kinds: str) -> Any:
    """The function of TileLang that tells whether a target is of one of `kinds`."""

    def check(target: Any) -> bool:
        return determine_target(target, return_object=True).kind in kinds

    return check


@dataclass(frozen=True, slots=True)
class Choice:
    """The target to compile for, the device asked for that the tensors' place overrides, and
    whether blocks have no threads.
    """

    target: str | None
    asked: str = ""
    alone: bool = False

    def prepare(self, program: Program) -> Program:
        """The program to compile."""
        return without_threads(program) if self.alone else program


def read_target(target: Any) -> Choice:
    """What TileLang's `target` means here.

    `target` is None, text such as ``cuda``, ``cuda -arch=sm_90`` or ``llvm``, or a dictionary or
    object with a ``kind``. A GPU target gives "auto": code is made for where the tensors are.
    Text that TileLang does not know is passed on.
    """
    if target is None or (isinstance(target, str) and target in ("", "auto")):
        target = Target.current()
    if target is None:
        return Choice(None)
    words = _spelling(target)
    kind = words.split()[0]
    if kind.partition(":")[0] in _DEVICES:
        return Choice("auto", words)
    return Choice("auto" if kind in _HOSTS else words, alone=kind in _WITHOUT_THREADS)


def _spelling(target: Any) -> str:
    if isinstance(target, str | Target):
        return str(target)
    kind = target.get("kind") if isinstance(target, Mapping) else getattr(target, "kind", target)
    return str(getattr(kind, "name", kind))
