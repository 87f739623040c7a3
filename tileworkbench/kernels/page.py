"""What a page of the library defines: a kernel and the torch function it is compared with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, cast

from tileworkbench.compiler.frontend.function import PrimFunc

__all__ = ["Extent", "KernelFactory", "PrimFunc", "compared_with"]

Extent: TypeAlias = Any  # an int, or a symbol made by T.dynamic


class KernelFactory(Protocol):
    """A function from shapes and options to a `T.prim_func`.

    `reference` computes the same from torch tensors in float64: it takes what the compiled kernel
    takes, and by name the factory's options that change values.
    """

    __name__: str
    reference: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> PrimFunc: ...


def compared_with(
    reference: Callable[..., Any],
) -> Callable[[Callable[..., PrimFunc]], KernelFactory]:
    """Decorator: give a factory its `reference`."""

    def attach(factory: Callable[..., PrimFunc]) -> KernelFactory:
        factory.reference = reference  # type: ignore[attr-defined]
        return cast(KernelFactory, factory)

    return attach
