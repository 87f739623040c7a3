"""What a shipped kernel raises."""

from __future__ import annotations


class TileError(Exception):
    """Root of the errors of a shipped kernel; `hint` says what to do, where that is known."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message if hint is None else f"{message}\nhint: {hint}")
        self.message = message
        self.hint = hint


class ArgumentError(TileError, ValueError):
    """A call whose arguments do not fit the kernel's parameters."""


class RunError(TileError, RuntimeError):
    """Something went wrong while the kernel ran."""


class DeviceUnavailableError(TileError, RuntimeError):
    """This machine cannot run the kernel."""
