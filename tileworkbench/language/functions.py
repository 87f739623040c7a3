"""Kernel functions, launches, and what parameters and outputs are declared with."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

from tileworkbench.compiler.diagnostics import TileTypeError
from tileworkbench.compiler.frontend import annotations as declarations
from tileworkbench.compiler.frontend import function
from tileworkbench.compiler.frontend.annotations import (
    StridedTensorFactory,
    TensorFactory,
    TileFactory,
    as_shape,
)
from tileworkbench.compiler.frontend.dtypes import is_dtype
from tileworkbench.compiler.frontend.errors import is_ours
from tileworkbench.compiler.frontend.function import PrimFunc
from tileworkbench.compiler.frontend.kernel import KernelBlock
from tileworkbench.compiler.frontend.macro import Macro, Reference
from tileworkbench.compiler.frontend.tensors import TensorValue
from tileworkbench.compiler.frontend.values import describe
from tileworkbench.language.memory import strided_view, tensor_view

Tensor = TensorFactory(tensor_view)
Buffer = Tensor
StridedTensor = StridedTensorFactory(strided_view)
FragmentBuffer = TileFactory("local.fragment")
SharedBuffer = TileFactory("shared")
LocalBuffer = TileFactory("local")


def prim_func(func: Callable[..., Any]) -> PrimFunc:
    """Decorator: trace a function whose parameters are all annotated with tensors or dtypes.

    Such a function launches one or more `T.Kernel` blocks in sequence. Tensors made by `T.empty`
    and returned are outputs. Raises `CompileError` for a kernel that is not legal.

    >>> @T.prim_func
    ... def kernel(A: T.Tensor((64,), T.float32)):
    ...     with T.Kernel(1):
    ...         T.clear(A)
    """
    return function.prim_func(checked_function(func, "T.prim_func"))


def macro(func: Callable[..., Any]) -> Macro:
    """Decorator: a function that is inlined where a kernel calls it, with names of its own.

    It may take and return tensors, values and Python objects. A variable of `T.alloc_var` and an
    element of a tensor are passed by value, or by reference to a parameter annotated `T.Ref` or
    `T.Var`.

    >>> @T.macro
    ... def double(x):
    ...     for i in T.Parallel(64):
    ...         x[i] = x[i] * 2
    >>> @T.prim_func
    ... def kernel(A: T.Tensor((64,), T.float32)):
    ...     with T.Kernel(1):
    ...         double(A)
    """
    return Macro(checked_function(func, "T.macro"))


inline = macro


def checked_function(value: Any, construct: str) -> Callable[..., Any]:
    """`value`, a function of the user's. Raises `TileTypeError` for anything else."""
    if not isinstance(value, FunctionType):
        raise TileTypeError(f"{construct} decorates a function, not {describe(value)}")
    if is_ours(value.__code__):
        raise TileTypeError(f"{construct} decorates a function of yours, not '{value.__name__}'")
    return value


def meta_class(cls: type) -> type:
    """Decorator of a class whose objects live while a kernel is traced.

    Its methods run then, as any Python function does; a method with statements of the kernel is
    decorated with `T.inline`. Attributes that hold variables of `T.alloc_var` may be assigned to.

    >>> @T.meta_class
    ... class Pair:
    ...     def __init__(self, first, second):
    ...         self.first, self.second = first, second
    >>> @T.prim_func
    ... def kernel(A: T.Tensor((64,), T.float32)):
    ...     with T.Kernel(1):
    ...         pair = Pair(1, 2)
    ...         A[0] = pair.first + pair.second
    """
    return cls


class Ref(Reference):
    """Annotation of a macro's parameter that takes a variable or an element by reference:

    `x: T.Ref` or `x: T.Ref[T.float32]`.

    >>> @T.macro
    ... def double(x: T.Ref):
    ...     x = x * 2
    >>> @T.prim_func
    ... def kernel(A: T.Tensor((64,), T.float32)):
    ...     with T.Kernel(1):
    ...         for i in T.Parallel(64):
    ...             double(A[i])
    """


class Var(Reference):
    """The same as `Ref`.

    >>> @T.macro
    ... def double(x: T.Var):
    ...     x = x * 2
    >>> @T.prim_func
    ... def kernel(A: T.Tensor((64,), T.float32)):
    ...     with T.Kernel(1):
    ...         for i in T.Parallel(64):
    ...             double(A[i])
    """


def Kernel(
    *blocks: Any, threads: Any = None, prelude: Any = None, cluster_dims: Any = None
) -> KernelBlock:
    """`with T.Kernel(gx, gy, threads=128) as (bx, by)`: launch a grid of blocks, which run in any
    order.

    `blocks` are 1 to 3 positive extents, x first (none: a single block); `threads` is the number of
    threads of a block, 128 by default, or up to three extents. Yields the block's index along each
    extent. `cluster_dims` is as in `T.ClusterKernel`. Raises `TileValueError` for extents that are
    not positive and `TileTypeError` for ones that are not integers.

    >>> @T.prim_func
    ... def kernel(A: T.Tensor((256,), T.float32)):
    ...     with T.Kernel(T.ceildiv(256, 64), threads=64) as bx:
    ...         T.fill(A[bx * 64 : bx * 64 + 64], bx)
    """
    return KernelBlock(blocks, threads, prelude, () if cluster_dims is None else cluster_dims)


def dynamic(name: str, dtype: Any = "int32") -> Any:
    """A symbol for an extent that each call brings:

    `M = T.dynamic("M")`, `M, N = T.dynamic("M, N")`.

    It is bound from the shapes and strides of the tensors it appears in, which must agree; `M * 4`
    and `M + 1` are allowed there. Raises `TileTypeError` for a dtype other than int32 and int64.

    >>> M = T.dynamic("M")
    >>> @T.prim_func
    ... def kernel(A: T.Tensor((M,), T.float32)):
    ...     with T.Kernel(T.ceildiv(M, 64)) as bx:
    ...         T.fill(A[bx * 64 : bx * 64 + 64], 1)
    """
    return declarations.dynamic(name, dtype)


symbolic = dynamic


def const(names: str) -> Any:
    """Extents read from the tensors of a call and then known as Python integers:

    `M, N = T.const("M, N")`.

    In the body of a @tw.jit kernel, before the declarations of the tensors that they are extents or
    strides of. Raises `JITNoBuilderError` elsewhere and `TileValueError` for a name that stands
    alone in no declaration.

    >>> @tw.jit
    ... def kernel(A):
    ...     M = T.const("M")
    ...     A: T.Tensor[[M], T.float32]
    ...     B = T.empty((M,), T.float32)
    ...     with T.Kernel(1):
    ...         T.copy(A, B)
    ...     return B
    """
    return declarations.const(names)


def empty(*shape: Any, dtype: Any = "float32") -> TensorValue:
    """An output of the kernel, allocated by each call:

    `T.empty(M, N)`, `T.empty((M, N), T.float16)`.

    It must be returned. Raises `TileTypeError` for a shape that is none.

    >>> @T.prim_func
    ... def kernel(A: T.Tensor((64,), T.float32)):
    ...     B = T.empty((64,), T.float32)
    ...     with T.Kernel(1):
    ...         T.copy(A, B)
    ...     return B
    """
    if len(shape) == 2 and not isinstance(shape[1], int) and is_dtype(shape[1]):
        return declarations.empty(as_shape(shape[0]), shape[1])
    if not shape:
        raise TileTypeError("T.empty needs a shape")
    return declarations.empty(as_shape(shape[0]) if len(shape) == 1 else shape, dtype)
