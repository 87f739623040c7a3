"""What torch has to know of a call: writes that autograd does not see. And what a call has to know
of torch: code that is being traced, tensors without contents.

Nothing here imports torch: what is asked for is there where the arguments are its tensors. Every
call passes through, so that what torch offers is looked up once.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from os.path import dirname
from typing import Any

from tileworkbench.compiler.diagnostics import ArgumentError

_PACKAGE = dirname(dirname(dirname(__file__)))


class Torch:
    """What a call asks of torch."""

    def __init__(self, module: Any) -> None:
        self.tensor: Any = module.Tensor
        self.module = module
        self.tracks_gradients: Callable[[], bool] = module.is_grad_enabled
        self._increment = getattr(module._C, "_increment_version", None)
        # How many modes watch its operators, and those that do so before they are dispatched.
        self._depth: Callable[[], int] = getattr(module._C, "_len_torch_dispatch_stack", int)
        early = getattr(module._ops, "_mode_stack_state_for_pre_dispatch", None)
        self._early: Sequence[Any] = getattr(
            early, "_ModeStackStateForPreDispatch__infra_modes", ()
        )

    def is_watched(self) -> bool:
        """Whether something sees every operation of torch, to trace it or to make fake tensors."""
        return self._depth() > 0 or any(self._early)

    def is_tracing(self) -> bool:
        """Whether torch records a graph."""
        if getattr(self.module.compiler, "is_exporting", bool)():
            return True
        proxies = sys.modules.get("torch.fx.experimental.proxy_tensor")
        return proxies is not None and proxies.get_proxy_mode() is not None

    def note_writes(self, kernel: str, written: Sequence[tuple[str, Any]]) -> None:
        """Tell autograd that a kernel writes into these tensors, by name, as torch's own in-place
        operations do. Raises `ArgumentError` where those refuse.
        """
        tracks = self.tracks_gradients()
        for name, tensor in written:
            base = tensor._base
            origin = tensor if base is None else base
            if tracks and origin.requires_grad and origin.is_leaf:
                what = "a leaf" if base is None else "a view of a leaf"
                raise ArgumentError(
                    f"'{kernel}': '{name}' is {what} that requires grad, and the kernel writes to "
                    "it",
                    hint=f"call it under torch.no_grad(), or pass {name}.detach()",
                )
            if tensor.is_inference() and not self.module.is_inference_mode_enabled():
                raise ArgumentError(
                    f"'{kernel}': '{name}' was made in inference mode, and the kernel writes to it "
                    "outside of that",
                    hint="call it under torch.inference_mode(), or pass a clone",
                )
        tensors = [tensor for _, tensor in written]
        if self._increment is not None:
            self._increment(tensors)
        else:
            self.module.autograd.graph.increment_version(tensors)


_loaded: Torch | None = None


def loaded_torch() -> Torch | None:
    """torch, if the process has imported it completely, else None."""
    global _loaded
    module = sys.modules.get("torch")
    if _loaded is None or _loaded.module is not module:
        is_complete = hasattr(module, "autograd") and hasattr(module, "compiler")
        _loaded = Torch(module) if is_complete else None
    return _loaded


def is_fake(value: Any) -> bool:
    """Whether a tensor has a shape, dtype and device, but no contents."""
    module = sys.modules.get("torch._subclasses.fake_tensor")
    return module is not None and isinstance(value, module.FakeTensor)


def warn_of_detached(kernel: str, name: str) -> None:
    """Warn that no gradient flows through a call."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(
        f"'{kernel}': '{name}' requires grad, and autograd does not see into a kernel: its results "
        "are detached (call it under torch.no_grad(), or give it a gradient with "
        "tw.torch_op)",
        UserWarning,
        stacklevel=level,
    )
