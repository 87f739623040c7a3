"""Checking a call's arguments and turning them into launch slots.

`ArgumentBinder.bind` has two ways. The first call with arguments of some form (dtypes, shapes,
strides, kinds) checks everything (`checks.py`) and leaves a `Plan`. Later calls of the same form
read the pointers, check what depends on addresses, and encode the scalars. Every error is an
`ArgumentError` that names kernel and parameter, raised before anything runs.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.compiler.ir.types import INT32, DType
from tileworkbench.compiler.runtime.checks import ArgumentChecker, Plan
from tileworkbench.compiler.runtime.parameters import ParameterSpec, Source
from tileworkbench.compiler.runtime.torch_calls import (
    Torch,
    is_fake,
    loaded_torch,
    warn_of_detached,
)

# Forms remembered per kernel. A program with more has other costs than checking again.
_MAX_PLANS = 256


class BoundArguments(NamedTuple):
    """A call ready to launch.

    `slots` are the argument slots followed by the symbols' values, `symbols` those values alone,
    `outputs` the arrays that were allocated, on `device` as all tensors are. `owners` keep exported
    memory alive until the launch is over. A call with tensors that have no contents does not run:
    its outputs have none either.
    """

    slots: list[int]
    symbols: tuple[int, ...]
    outputs: tuple[Any, ...]
    owners: tuple[Any, ...]
    device: str
    runs: bool = True


class ArgumentBinder:
    """Binds calls of one compiled kernel.

    `device` is where tensors must be: "cpu", or "cuda" for all on one device of the machine.
    `symbols` are the kernel's run-time symbols in slot order, with their dtypes. `allow_alias`
    drops the check that written tensors overlap no other; `elementwise_alias_ok` lets one whole
    tensor be passed for several parameters: set it where the kernel provably reads and writes each
    element in one
    statement. Raises `UnsupportedError` for a symbol that no argument determines.
    """

    def __init__(
        self,
        kernel_name: str,
        parameters: Sequence[ParameterSpec],
        symbols: Sequence[str] | Mapping[str, DType] = (),
        *,
        allow_alias: bool = False,
        elementwise_alias_ok: bool = False,
        device: str = "cpu",
    ) -> None:
        self.kernel_name = kernel_name
        self.parameters = tuple(parameters)
        self.symbols = tuple(symbols)
        self.allows_alias, self.allows_same_tensor = allow_alias, elementwise_alias_ok
        self._device = device
        self._checker = ArgumentChecker(
            kernel_name,
            self.parameters,
            symbols if isinstance(symbols, Mapping) else dict.fromkeys(symbols, INT32),
            allow_alias=allow_alias,
            elementwise_alias_ok=elementwise_alias_ok,
            device=device,
        )
        self._arguments = self._checker.arguments
        self._pointers = tuple(  # to memory that the kernel writes to
            (at, argument.spec.name)
            for at, argument in enumerate(self._arguments)
            if argument.encode is not None and argument.spec.is_written
        )
        self._has_warned = False
        self._plans: dict[Any, Plan] = {}
        self._slot_template = [0] * (len(self.parameters) + len(self.symbols))

    @property
    def sources(self) -> tuple[Source, ...]:
        """Where the value of each symbol is found in a call's arguments."""
        return self._checker.sources

    @property
    def slot_count(self) -> int:
        """Slots of a launch: one per parameter and one per symbol."""
        return len(self._slot_template)

    def bind(self, args: Sequence[Any]) -> BoundArguments:
        """Check `args`, one per parameter that is no output, and make the slots of a launch.

        Raises `ArgumentError`.
        """
        if len(args) != len(self._arguments):
            raise self._wrong_count(len(args))
        torch, ndarray = loaded_torch(), getattr(sys.modules.get("numpy"), "ndarray", None)
        tensor = None if torch is None else torch.tensor
        is_watched = torch is not None and torch.is_watched()
        if is_watched and torch is not None and torch.is_tracing():
            raise self._traced()
        on_cpu = self._device == "cpu"
        slots = self._slot_template.copy()
        owners: list[Any] = []
        key: list[Any] = []
        fake: Any = None
        for (slot, spec, encode, is_in_key), value in zip(self._arguments, args, strict=True):
            if encode is not None:
                slots[slot] = encoded = encode(value)
                if is_in_key:
                    key.append(encoded)
            # The common cases without a view; each attribute costs about 50 ns.
            elif (
                type(value) is tensor
                and (value.is_cpu if on_cpu else value.is_cuda)
                and not value.is_neg()
            ):
                try:
                    slots[slot] = pointer = value.data_ptr()
                    key += (value.dtype, value.shape, value.stride(), value.requires_grad)
                    if not on_cpu:
                        key.append(value.device)
                    if not pointer:
                        self._checker.view(spec, value)
                except RuntimeError:  # a sparse tensor has neither
                    self._checker.view(spec, value)
                    raise
            elif type(value) is ndarray:
                slots[slot] = value.__array_interface__["data"][0]
                key.append((value.dtype, value.shape, value.strides, value.flags.writeable))
            elif value is None and not spec.is_used:
                key.append(None)
            else:
                view = self._checker.view(spec, value)
                slots[slot] = view.pointer
                owners.append(view.owner)
                form = (view.kind, view.dtype, view.shape, view.strides, view.readonly)
                key.append((*form, view.device, getattr(value, "requires_grad", False)))
                if view.is_fake:
                    fake = value
        plan = self._plans.get(signature := tuple(key))
        if plan is None:
            if len(self._plans) >= _MAX_PLANS:
                self._plans.clear()
            plan = self._plans[signature] = self._checker.plan(args, slots)
        if torch is not None and (plan.written or plan.gradients or self._pointers):
            self._tell_autograd(plan, args, torch)
        if fake is not None:
            with fake.fake_mode:
                made = tuple(make() for _, make, _ in plan.outputs)
            return BoundArguments(slots, plan.symbols, made, (), plan.device, runs=False)
        bound = self._finish(plan, slots, tuple(owners))
        if is_watched and any(map(is_fake, bound.outputs)):
            return bound._replace(runs=False)
        return bound

    def _tell_autograd(self, plan: Plan, args: Sequence[Any], torch: Torch) -> None:
        written = [(name, args[at]) for at, name in plan.written]
        for at, name in self._pointers:
            if isinstance(args[at], torch.tensor):
                written.append((name, args[at]))
        if written:
            torch.note_writes(self.kernel_name, written)
        if plan.gradients and not self._has_warned and torch.tracks_gradients():
            self._has_warned = True
            warn_of_detached(self.kernel_name, plan.gradients[0])

    def _finish(self, plan: Plan, slots: list[int], owners: tuple[Any, ...]) -> BoundArguments:
        for slot, mask in plan.masks:
            if slots[slot] & mask:
                raise self._misaligned(slot, mask + 1)
        for a, low_a, high_a, b, low_b, high_b, same_ok in plan.pairs:
            at_a, at_b = slots[a], slots[b]
            apart = at_a + high_a <= at_b + low_b or at_b + high_b <= at_a + low_a
            if not apart and not (same_ok and at_a == at_b):
                raise self._overlapping(a, b)
        outputs: list[Any] = []
        for slot, make, bytes_ in plan.outputs:
            try:
                array = make()
            except (MemoryError, OverflowError, RuntimeError, ValueError) as error:
                raise self._checker.no_memory(slot, bytes_) from error
            slots[slot] = 0 if is_fake(array) else _address(array)
            outputs.append(array)
        count = len(self.symbols)
        if count:
            slots[-count:] = plan.symbols
        return BoundArguments(slots, plan.symbols, tuple(outputs), owners, plan.device)

    # Errors

    def _wrong_count(self, count: int) -> ArgumentError:
        names = ", ".join(argument.spec.name for argument in self._arguments)
        expected = len(self._arguments)
        return ArgumentError(
            f"'{self.kernel_name}' takes {expected} argument{'' if expected == 1 else 's'}"
            f"{f' ({names})' if names else ''}, got {count}"
        )

    def _traced(self) -> ArgumentError:
        return ArgumentError(
            f"'{self.kernel_name}' is called while torch traces (make_fx, torch.export), and a "
            "kernel is no operator that a graph can hold",
            hint="make it one with tw.torch_op",
        )

    def _misaligned(self, slot: int, alignment: int) -> ArgumentError:
        where = self._checker.where(self.parameters[slot])
        return ArgumentError(f"{where} begins at an address that is no multiple of {alignment}")

    def _overlapping(self, a: int, b: int) -> ArgumentError:
        where, other = self._checker.where(self.parameters[a]), self.parameters[b].name
        return ArgumentError(
            f"{where} is written and overlaps '{other}' in memory",
            hint="pass tensors of their own, or compile with allow_alias=True",
        )


def _address(array: Any) -> int:
    """Where a new array of ours begins."""
    if hasattr(array, "data_ptr"):
        return int(array.data_ptr())
    return int(array.__array_interface__["data"][0])
