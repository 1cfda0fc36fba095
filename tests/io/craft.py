"""Tools to make checkpoints by hand, sound or not."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable
from typing import Any

from lucerne._src.io import archive_writer

Change = Callable[[bytes], bytes] | None


def checkpoint(pickled: bytes, payloads: tuple[bytes, ...] = ()) -> bytes:
    """An intact file around any pickle, digest and all."""
    out = io.BytesIO()
    archive_writer.write_checkpoint(out.write, "archive", pickled, list(payloads))
    return out.getvalue()


def records(raw: bytes) -> dict[str, bytes]:
    """Content of each record by name, without the folder."""
    with zipfile.ZipFile(io.BytesIO(raw)) as opened:
        return {info.filename.partition("/")[2]: opened.read(info) for info in opened.infolist()}


def rezip(raw: bytes, changes: dict[str, Change], folder: str = "archive") -> bytes:
    """The same file with some records changed (None: left out); everything else made to fit."""
    out = io.BytesIO()
    writer = archive_writer.ArchiveWriter(out.write, folder)
    for name, content in records(raw).items():
        change = changes.get(name, lambda same: same)
        if change is not None:
            writer.add(name, change(content))
    writer.finish()
    return out.getvalue()


class Assembler:
    """Writes pickles instruction by instruction."""

    def __init__(self) -> None:
        self.out = bytearray(b"\x80\x02")

    def __call__(self, *parts: Any) -> Assembler:
        """bytes are instructions; text, numbers, None, tuples and dicts are values."""
        for part in parts:
            self._one(part)
        return self

    def _one(self, part: Any) -> None:
        if isinstance(part, bytes):
            self.out += part
        elif isinstance(part, Assembler):
            self.out += part.out[2:]
        elif isinstance(part, str):
            raw = part.encode()
            self.out += b"X" + struct.pack("<I", len(raw)) + raw
        elif part is None or isinstance(part, bool):
            self.out += {None: b"N", True: b"\x88", False: b"\x89"}[part]
        elif isinstance(part, int):
            size = part.bit_length() // 8 + 1
            self.out += b"\x8a" + bytes((size,)) + part.to_bytes(size, "little", signed=True)
        elif isinstance(part, float):
            self.out += b"G" + struct.pack(">d", part)
        elif isinstance(part, tuple):
            self(b"(", *part, b"t")
        elif isinstance(part, list):
            self(b"](", *part, b"e")
        elif isinstance(part, dict):
            self(b"}(", *(x for pair in part.items() for x in pair), b"u")
        else:
            raise TypeError(type(part))

    def done(self) -> bytes:
        return bytes(self.out) + b"."


def name(module: str, attribute: str) -> bytes:
    return f"c{module}\n{attribute}\n".encode()


def call(module: str, attribute: str, *args: Any) -> Assembler:
    return Assembler()(name(module, attribute), args, b"R")


def storage(
    kind: str = "FloatStorage", key: Any = "0", location: Any = "cpu", size: Any = 4
) -> Any:
    module = "torch.storage" if kind == "UntypedStorage" else "torch"
    return Assembler()(("storage", name(module, kind), key, location, size), b"Q")


HOOKS = Assembler()(name("collections", "OrderedDict"), b")R")


def tensor(
    offset: Any = 0, shape: Any = (4,), strides: Any = (1,), held: Any = None, grad: Any = False,
    hooks: Any = HOOKS, more: tuple[Any, ...] = (),
) -> Assembler:  # fmt: skip
    """`_rebuild_tensor_v2` with any arguments."""
    held = storage() if held is None else held
    args = (held, offset, shape, strides, grad, hooks, *more)
    return call("torch._utils", "_rebuild_tensor_v2", *args)


def pickle_of(*parts: Any) -> bytes:
    return Assembler()(*parts).done()
