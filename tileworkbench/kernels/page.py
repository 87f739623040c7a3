"""What a page of the library defines: a kernel and the torch function it is compared with."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol, TypeAlias, cast

from tileworkbench.compiler.frontend.function import PrimFunc
from tileworkbench.kernels.tiles import Tiles, tiles_of

__all__ = ["TABLE", "Extent", "KernelFactory", "PrimFunc", "compared_with"]

Extent: TypeAlias = Any  # an int, or a symbol made by T.dynamic

TABLE: Any = object()
"""The default of a tile size: what the table (`tiles.py`) has for the target."""


class KernelFactory(Protocol):
    """A function from shapes and options to a `T.prim_func`.

    `reference` computes the same from torch tensors in float64: it takes what the compiled kernel
    takes, and by name the factory's options that change values. `tiles` are the default tile sizes
    and where they come from.
    """

    __name__: str
    reference: Callable[..., Any]
    tiles: Tiles

    def __call__(self, *args: Any, **kwargs: Any) -> PrimFunc: ...

    def for_target(self, target: str | None) -> KernelFactory:
        """The same function with the default tile sizes for another target."""


def compared_with(
    reference: Callable[..., Any],
) -> Callable[[Callable[..., PrimFunc]], KernelFactory]:
    """Decorator: give a factory its `reference`, and the table's tile sizes as defaults: those of
    the processor. `tw.compile` for another target has the kernel made with that one's.
    """

    def attach(factory: Callable[..., PrimFunc]) -> KernelFactory:
        return _with_tiles(factory, reference, tiles_of(factory.__name__, "cpu"))

    return attach


def _with_tiles(
    factory: Callable[..., PrimFunc], reference: Callable[..., Any], tiles: Tiles
) -> KernelFactory:
    signature = inspect.signature(factory)
    names = tuple(signature.parameters)

    @functools.wraps(factory)
    def make(*args: Any, **kwargs: Any) -> PrimFunc:
        given = {*names[: len(args)], *kwargs}
        missing = {name: size for name, size in tiles.sizes.items() if name not in given}
        made = factory(*args, **kwargs, **missing)
        if not missing:
            return made

        def remake(target: str | None) -> PrimFunc:
            other = kernel.for_target(target)
            if other.tiles.sizes != tiles.sizes:
                return other(*args, **kwargs)
            return replace(made, defaults=str(replace(other.tiles, sizes=missing)))

        return replace(made, defaults=str(replace(tiles, sizes=missing)), remake=remake)

    def for_target(target: str | None) -> KernelFactory:
        others = tiles_of(factory.__name__, target)
        return kernel if others == tiles else _with_tiles(factory, reference, others)

    kernel = cast(KernelFactory, make)
    kernel.reference, kernel.tiles = reference, tiles
    shown = [
        each.replace(default=tiles.sizes.get(name, each.default))
        for name, each in signature.parameters.items()
    ]
    vars(make).update(for_target=for_target, __signature__=signature.replace(parameters=shown))
    return kernel
