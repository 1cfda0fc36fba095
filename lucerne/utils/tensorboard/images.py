"""Arrays as PNG and WAV files."""

from __future__ import annotations

import io
import struct
import wave
import zlib
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
_COLOR_TYPES = {1: 0, 3: 2, 4: 6}  # channels to PNG's number: grey, RGB, RGBA


def _chunk(kind: bytes, data: bytes) -> bytes:
    checksum = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)


def png(pixels: Array) -> bytes:
    """A PNG file of bytes in rows, columns, channels (1, 3 or 4)."""
    height, width, channels = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOR_TYPES[channels], 0, 0, 0)
    rows = np.zeros((height, 1 + width * channels), np.uint8)  # each row begins with "no filter"
    rows[:, 1:] = pixels.reshape(height, -1)
    body = _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(rows.tobytes()))
    return b"\x89PNG\r\n\x1a\n" + body + _chunk(b"IEND", b"")


def as_bytes(image: Array) -> Array:
    """Colours from 0 to 1 as 0 to 255; bytes stay as they are."""
    if image.dtype == np.uint8:
        return image
    return (image * 255).clip(0, 255).astype(np.uint8)


def to_rows_columns_channels(image: Array, dataformats: str) -> Array:
    """An image, or a batch of them side by side, in the order that files have."""
    letters = dataformats.upper()
    if sorted(letters) not in (sorted("HW"), sorted("CHW"), sorted("NCHW"), sorted("NHW")):
        raise ValueError(f"dataformats must name the dimensions N, C, H, W once, got {dataformats}")
    if image.ndim != len(letters):
        raise ValueError(
            f"size of input tensor and input format are different: a tensor of shape {image.shape} "
            f"can't be {dataformats}"
        )
    for missing in (m for m in "CN" if m not in letters):
        image, letters = image[None], missing + letters
    batch = image.transpose([letters.index(c) for c in "NHWC"])
    if batch.shape[-1] == 1:
        batch = np.repeat(batch, 3, axis=-1)
    return grid(batch)


def grid(batch: Array, columns: int = 8) -> Array:
    """Images of one size in rows of up to eight."""
    n, height, width, channels = batch.shape
    columns = min(n, columns)
    rows = -(-n // columns)
    sheet = np.zeros((rows * height, columns * width, channels), batch.dtype)
    for i, image in enumerate(batch):
        y, x = divmod(i, columns)
        sheet[y * height : (y + 1) * height, x * width : (x + 1) * width] = image
    return sheet


def wav(samples: Array, rate: int) -> bytes:
    """A mono WAV file of samples between -1 and 1."""
    memory = io.BytesIO()
    with wave.open(memory, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((samples.clip(-1, 1) * 32767).astype("<i2").tobytes())
    return memory.getvalue()
