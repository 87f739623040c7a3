"""Products that compute their operands in tiles: values against torch, and who runs what."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tileworkbench as tw
from tileworkbench.workbench.inputs import make_inputs


def shared(x: Any, y: Any, scale: Any) -> Any:
    """What two products read is computed in both."""
    left = (x * scale[:, :, None, None]).permute(0, 2, 1, 3).reshape(-1, *x.shape[1:4:2])
    right = torch.bmm(left, left.transpose(1, 2).contiguous())
    return torch.bmm(right.sigmoid() * 0.5, left)


def stored(x: Any, y: Any, scale: Any) -> Any:
    """What torch reads too is made for it, and read by the product."""
    left = (x * scale[:, :, None, None]).permute(0, 2, 1, 3).reshape(-1, *x.shape[1:4:2])
    right = torch.bmm(left, (left * 2).transpose(1, 2).contiguous())
    return right.sigmoid() * 0.5, torch.sort(left).values


def narrow(x: Any, y: Any, scale: Any) -> Any:
    """A result of which a row lies along the columns of the product."""
    left = x.permute(0, 2, 1, 3).reshape(-1, *x.shape[1:4:2])
    return torch.bmm(left, (left * 2).transpose(1, 2).contiguous()).transpose(1, 2).contiguous()


def _inputs(dtype: Any, length: int, heads: int, depth: int) -> list[Any]:
    x = torch.randn(2, length, heads, depth)
    y = torch.randn(2, length, depth)[..., None]
    return [each.to(dtype) for each in (x, y, torch.rand(2, length))]


@pytest.mark.covering(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("sizes", [(64, 4, 32), (51, 3, 16), (129, 2, 160)])
@pytest.mark.parametrize("call", [shared, stored, narrow])
def test_operands_in_tiles(
    call: Callable[..., Any], sizes: tuple[int, int, int], dtype: Any
) -> None:
    args = _inputs(dtype, *sizes)
    tiled = tw.tile(call)
    tiled.check(*args)
    parts = [each for each in tiled.report.parts if "bmm" in each.operations]
    assert len(parts) == (2 if call is shared else 1), str(tiled.report)
    for part in parts:
        given = make_inputs(part.kernel.program)
        assert part.kernel.check(part.reference, *given).ok
        assert call is not stored or len(given) == 1  # not x and the scale
    for made, wanted in zip([tiled(*args)], [call(*args)], strict=True):
        for own, other in zip(made, wanted, strict=True):
            assert own.stride() == other.stride()


def test_all_around_a_product_is_one_kernel() -> None:
    args = [torch.randn(2, 64, 4, 32), torch.randn(2, 64, 32, 1), torch.rand(2, 64)]

    def call(x: Any, y: Any, scale: Any) -> Any:
        query = x.permute(0, 2, 1, 3).reshape(8, 64, 32)
        key = y * scale[:, :, None, None]
        key = key[:, None].expand(2, 4, 64, 32, 1).permute(0, 1, 3, 2, 4).reshape(8, 32, 64)
        made = torch.bmm(query, key).view(2, 4, 64, 64)
        seen = torch.ones(64, 64, dtype=torch.bool).tril()
        return made.masked_fill(~seen, 0.0).permute(0, 2, 1, 3).contiguous() * 2

    tiled = tw.tile(call)
    tiled.check(*args)
    (part,) = tiled.report.parts
    assert part.operations[-4:] == ("bmm", "masked_fill", "clone", "mul"), str(tiled.report)


def test_a_product_that_no_tile_divides_reads_copies() -> None:
    args = _inputs(torch.float32, 257, 2, 32)  # a prime number of rows
    tiled = tw.tile(narrow)
    tiled.check(*args)
    assert not any({"bmm", "clone"} <= set(part.operations) for part in tiled.report.parts)


def test_open_sizes_run_in_torch() -> None:
    tiled = tw.tile(narrow, dynamic=True)
    for length in (32, 48):
        tiled.check(*_inputs(torch.float32, length, 2, 32))
    assert not any("bmm" in part.operations for part in tiled.report.parts)
