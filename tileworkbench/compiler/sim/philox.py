"""The generator Philox4x32-10 on values of the simulator."""

from __future__ import annotations

from typing import Any

import numpy as np

from tileworkbench.compiler.ir.types import DType
from tileworkbench.compiler.sim.values import Value, from_storage

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_MASK = 0xFFFFFFFF


def philox(*words: Value) -> Value:
    """Word `words[6]` of the block that the counter `words[:4]` has under the key `words[4:6]`."""
    wide: list[Any] = [np.asarray(word).astype(np.uint64) for word in words]
    counter, key, chosen = wide[:4], wide[4:6], wide[6]
    for number in range(10):
        if number:
            key = [(part + np.uint64(step)) & _MASK for part, step in zip(key, _WEYL, strict=True)]
        counter = _round(counter, key)
    word = np.select([chosen == index for index in range(4)], counter)
    return from_storage(np.asarray(word).astype(np.uint32), DType("uint32"))


def _round(counter: list[Any], key: list[Any]) -> list[Any]:
    products = [counter[2 * at] * np.uint64(_MULTIPLIERS[at]) for at in (0, 1)]
    high = [product >> np.uint64(32) for product in products]
    low = [product & _MASK for product in products]
    return [high[1] ^ counter[1] ^ key[0], low[1], high[0] ^ counter[3] ^ key[1], low[0]]
