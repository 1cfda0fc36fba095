"""What a checkpoint of several ranks consists of: chunks of tensors in files, and a manifest.

The manifest is the checkpoint: a folder without one has none, and files it does not name are left
from a save that did not end. It holds for each tensor its dtype and shape and where its chunks are:
file, place, index range, checksum.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from dataclasses import asdict, dataclass, field
from typing import Any

from lucerne._src.io import atomic
from lucerne._src.io.errors import CorruptFileError

MANIFEST = "manifest.json"
FORMAT = 1


@dataclass
class StoredChunk:
    """A block of a tensor's values."""

    file: str
    at: int
    nbytes: int
    crc: int
    offsets: list[int]
    sizes: list[int]


@dataclass
class StoredValue:
    """A tensor in chunks, or (`dtype` empty) an object as bytes."""

    dtype: str
    shape: list[int]
    chunks: list[StoredChunk] = field(default_factory=list)


@dataclass
class Manifest:
    """All values by name, and files with their sizes."""

    values: dict[str, StoredValue]
    files: dict[str, int]


def write_manifest(folder: str, manifest: Manifest) -> None:
    """The last step of a save: with this file the checkpoint is there."""
    body = json.dumps(
        {
            "lucerne_checkpoint": FORMAT,
            "files": manifest.files,
            "values": {name: asdict(value) for name, value in manifest.values.items()},
        },
        sort_keys=True,
    )
    text = json.dumps({"sha256": hashlib.sha256(body.encode()).hexdigest(), "body": body})
    atomic.write_atomic(os.path.join(folder, MANIFEST), lambda put: put(text.encode()))


def read_manifest(folder: str) -> Manifest:
    """The manifest of a checkpoint; whatever is wrong with it is a `CorruptFileError`."""
    path = os.path.join(folder, MANIFEST)
    try:
        with open(path, "rb") as file:
            outer = json.loads(file.read())
        body = outer["body"]
        if hashlib.sha256(body.encode()).hexdigest() != outer["sha256"]:
            raise ValueError("its checksum is wrong")
        inner = json.loads(body)
        if inner["lucerne_checkpoint"] != FORMAT:
            raise ValueError(f"its format is {inner['lucerne_checkpoint']!r}, not {FORMAT}")
        values = {
            name: StoredValue(row["dtype"], row["shape"], [StoredChunk(**c) for c in row["chunks"]])
            for name, row in inner["values"].items()
        }
        return Manifest(values, dict(inner["files"]))
    except FileNotFoundError:
        hint = ""
        if os.path.exists(os.path.join(folder, ".metadata")):
            hint = " (there is torch's .metadata: write it with torch's dcp_to_torch_save, and load"
            hint += " that file with lucerne.load)"
        raise FileNotFoundError(
            f"no checkpoint in {folder!r}: it has no {MANIFEST}{hint}"
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptFileError(f"{path} is damaged ({type(error).__name__}: {error})") from None


class FileBuilder:
    """The file of one rank: chunks behind each other, with no byte that no checksum covers."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.parts: list[Any] = []
        self.at = 0

    def add(self, raw: memoryview, offsets: list[int], sizes: list[int]) -> StoredChunk:
        made = StoredChunk(self.name, self.at, len(raw), zlib.crc32(raw), offsets, sizes)
        self.parts.append(raw)
        self.at += len(raw)
        return made

    def write(self, folder: str) -> None:
        def produce(put: Any) -> None:
            for part in self.parts:
                put(part)

        atomic.write_atomic(os.path.join(folder, self.name), produce)


class FileReaders:
    """The files of a checkpoint, opened when they are first read; each chunk is checked."""

    def __init__(self, folder: str, files: dict[str, int]) -> None:
        self._folder, self._files = folder, files
        self._open: dict[str, Any] = {}

    def read(self, chunk: StoredChunk) -> bytes:
        name = chunk.file
        if name != os.path.basename(name) or name not in self._files:
            raise CorruptFileError(
                f"the manifest names the file {name!r}, which is none of its own"
            )
        path = os.path.join(self._folder, name)
        try:
            if name not in self._open:
                self._open[name] = open(path, "rb")  # noqa: SIM115
                size = os.fstat(self._open[name].fileno()).st_size
                if size != self._files[name]:
                    raise CorruptFileError(f"{path} has {size} bytes, not {self._files[name]}")
            if not 0 <= chunk.at <= chunk.at + chunk.nbytes <= self._files[name]:
                raise CorruptFileError(f"the manifest points outside of {path}")
            self._open[name].seek(chunk.at)
            raw: bytes = self._open[name].read(chunk.nbytes)
        except FileNotFoundError:
            raise CorruptFileError(f"{path} is missing: the checkpoint is not whole") from None
        if len(raw) != chunk.nbytes or zlib.crc32(raw) != chunk.crc:
            raise CorruptFileError(f"{path} is damaged at byte {chunk.at}: its checksum is wrong")
        return raw

    def close(self) -> None:
        for file in self._open.values():
            file.close()
