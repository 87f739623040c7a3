"""Sizes are exact: as numbers where extents are constant, in 64 bits where they are symbols."""

from __future__ import annotations

import pytest

from tileworkbench.compiler.ir.build import add, const_int, int_const, mul, product, python_scalar
from tileworkbench.compiler.ir.expr import Buffer, Expr, Var
from tileworkbench.compiler.ir.printer import print_expr
from tileworkbench.compiler.ir.sizes import elements_of, is_wide, least_bytes, strides_of
from tileworkbench.compiler.ir.types import DType

F32, INT4 = DType("float32"), DType("int4")
N, WIDE = Var("n", DType("int32")), Var("w", DType("int64"))


def buffer(*shape: int | Expr, dtype: DType = F32, strides: tuple[int | Expr, ...] = ()) -> Buffer:
    def made(values: tuple[int | Expr, ...]) -> tuple[Expr, ...]:
        return tuple(int_const(value) if isinstance(value, int) else value for value in values)

    return Buffer("A", dtype, made(shape), "global", made(strides))


def test_products_of_constants_do_not_wrap() -> None:
    found = product((int_const(2**20), int_const(2**20)))
    assert const_int(found) == 2**40
    strides = strides_of(buffer(4, 2**20, 2**20, 2**10))
    assert [const_int(stride) for stride in strides] == [2**50, 2**30, 2**10, 1]
    assert const_int(elements_of(buffer(4, 2**20, 2**20, 2**10))) == 2**52
    assert const_int(elements_of(buffer(2**20, 2, strides=(2**30, 1)))) == (2**20 - 1) * 2**30 + 2
    with pytest.raises(ValueError, match="18446744073709551616 has no value in 'int64'"):
        product((int_const(2**32), int_const(2**32)))


def test_products_of_symbols_have_64_bits() -> None:
    assert product((N,)) is N and product(()) is int_const(1)
    found = product((N, int_const(2**20), N))
    assert print_expr(found) == "T.int64(n) * T.int64(1048576) * T.int64(n)"
    last = strides_of(buffer(N, N, N))[0]
    assert print_expr(last) == "T.int64(n) * T.int64(n)"
    assert elements_of(buffer(N)).dtype == "int64"


def test_numbers_of_more_than_64_bits_are_refused() -> None:
    assert const_int(python_scalar(2**63 - 1)) == 2**63 - 1
    for number in (2**63, -(2**63) - 1, 2**64 + 4):
        with pytest.raises(ValueError, match=f"^{number} has no value in 'int64'$"):
            python_scalar(number)


def test_bytes_count_symbols_once() -> None:
    assert least_bytes(buffer(2**40, 2**40)) == 2**82
    assert least_bytes(buffer(N, 2**40)) == 2**42
    assert least_bytes(buffer(3, dtype=INT4)) == 2
    assert least_bytes(buffer(2, 5, strides=(2**50, 2))) == 4 * (2**50 + 9)


def test_extents_that_need_wide_indices() -> None:
    assert [is_wide(int_const(n)) for n in (2**31 - 1, 2**31)] == [False, True]
    assert [is_wide(extent) for extent in (N, WIDE, mul(N, int_const(4)))] == [False, True, False]
    assert is_wide(add(WIDE, int_const(1)))
