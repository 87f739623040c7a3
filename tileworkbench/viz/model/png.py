"""A PNG encoder for grids of colours: the same pixels always give the same bytes."""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MAGIC = b"\x89PNG\r\n\x1a\n"


def encode_png(pixels: NDArray[np.uint8]) -> bytes:
    """The PNG file of an image ``(height, width, 3)`` of RGB bytes (ISO/IEC 15948)."""
    height, width, channels = pixels.shape
    if channels != 3 or pixels.dtype != np.uint8:
        raise ValueError(f"an image is uint8 (height, width, 3), not {pixels.dtype} {pixels.shape}")
    unfiltered = np.zeros((height, 1 + 3 * width), np.uint8)  # each row starts with filter type 0
    unfiltered[:, 1:] = pixels.reshape(height, 3 * width)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = zlib.compress(unfiltered.tobytes(), 9)
    return b"".join([_MAGIC, _chunk(b"IHDR", header), _chunk(b"IDAT", data), _chunk(b"IEND", b"")])


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_address(pixels: NDArray[np.uint8]) -> str:
    """The image as a ``data:`` address."""
    return f"data:image/png;base64,{b64encode(encode_png(pixels)).decode('ascii')}"
