"""safetensors files: a JSON header, then the bytes of tensors.

The library of that name has no reader for bfloat16 or float8 without torch, and its writer does not
force data to disk, so the format (a page long) is read and written here; see
docs/decisions/0011-safetensors-by-hand.md. `save_file` adds a checksum of data and
header as metadata, which other readers ignore and ours verifies.
"""

from __future__ import annotations

import collections
import hashlib
import itertools
import json
import math
import os
import re
import struct
import zlib
from typing import Any

import numpy as np

from lucerne._src import backends
from lucerne._src.base import dtype as dt
from lucerne._src.base.device import HOST
from lucerne._src.base.device import device as Device
from lucerne._src.base.refusals import only
from lucerne._src.io import atomic
from lucerne._src.io.errors import CorruptFileError, UnsafeFileError, UnsupportedFileError
from lucerne._src.io.source import FileSource
from lucerne._src.io.storages import MAX_SIZE, move
from lucerne._src.ir.meta import make_meta
from lucerne._src.tensor import api as lu
from lucerne._src.tensor.base import make_tensor
from lucerne._src.tensor.interop.outside import resolved
from lucerne._src.tensor.interop.untyped import UntypedStorage
from lucerne._src.tensor.storage import Storage

DTYPES = {
    "F64": dt.float64, "F32": dt.float32, "F16": dt.float16, "BF16": dt.bfloat16, "I64": dt.int64,
    "I32": dt.int32, "I16": dt.int16, "I8": dt.int8, "U8": dt.uint8, "BOOL": dt.bool_,
    "U16": dt.uint16, "U32": dt.uint32, "U64": dt.uint64, "C64": dt.complex64,
    "F8_E4M3": dt.float8_e4m3fn, "F8_E5M2": dt.float8_e5m2, "F8_E8M0": dt.float8_e8m0fnu,
    "F8_E4M3FNUZ": dt.float8_e4m3fnuz, "F8_E5M2FNUZ": dt.float8_e5m2fnuz,
}  # fmt: skip
CODES = {dtype: code for code, dtype in DTYPES.items()}
MAX_HEADER = 100_000_000
DIGEST = "lucerne.digest"
BLANK = "0" * 72  # 8 digits of CRC-32 over the data, 64 of SHA-256 over the header and those 8
DIGEST_TEXT = re.compile("[0-9a-f]{72}")
Array = np.ndarray[Any, Any]


# ---- writing ----------------------------------------------------------------------------------


def save_file(
    tensors: dict[str, Any],
    filename: str | os.PathLike[str],
    metadata: dict[str, str] | None = None,
    *,
    digest: bool = True,
    ops: atomic.FileOps = atomic.OPS,
) -> None:
    """Save tensors by name; the file at `filename` is replaced in one step (see `atomic.py`).

    A checksum stands among the metadata, so that `load_file` notices damage; other readers take
    no notice of it. `digest=False` leaves it out.

    >>> import os, tempfile, lucerne as torch
    >>> from lucerne.io import safetensors
    >>> path = os.path.join(tempfile.mkdtemp(), "w.safetensors")
    >>> safetensors.save_file({"w": torch.ones(2, dtype=torch.bfloat16)}, path)
    >>> safetensors.load_file(path)
    {'w': tensor([1., 1.], dtype=torch.bfloat16)}
    """
    header, parts = _encode(tensors, metadata, digest)

    def produce(write: Any) -> None:
        write(header)
        for part in parts:
            if part.nbytes:
                write(part)

    atomic.write_atomic(filename, produce, ops)


def save(
    tensors: dict[str, Any], metadata: dict[str, str] | None = None, *, digest: bool = True
) -> bytes:
    """The content of a safetensors file as bytes."""
    header, parts = _encode(tensors, metadata, digest)
    return b"".join([header, *(part.tobytes() for part in parts)])


def _encode(
    tensors: dict[str, Any], metadata: dict[str, str] | None, digest: bool
) -> tuple[bytes, list[Array]]:
    _check_tensors(tensors)
    _check_metadata(metadata)
    # As the library does: wide types first, so that every tensor is aligned to its own width.
    order = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    parts = [dense_bytes(tensors[name]) for name in order]
    said = dict(metadata or {})
    if digest:
        said[DIGEST] = BLANK
    fields: dict[str, Any] = {"__metadata__": said} if said else {}
    at = 0
    for name, part in zip(order, parts, strict=True):
        t = tensors[name]
        fields[name] = {
            "dtype": CODES[t.dtype],
            "shape": list(t.shape),
            "data_offsets": [at, at + part.nbytes],
        }
        at += part.nbytes
    text = json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > MAX_HEADER:
        raise ValueError(f"save_file: the header has {len(text)} bytes, at most {MAX_HEADER} fit")
    header = struct.pack("<Q", len(text)) + text
    if digest:
        header = header.replace(BLANK.encode(), _digest(header, parts).encode(), 1)
    return header, parts


def _check_tensors(tensors: Any) -> None:
    if not isinstance(tensors, dict):
        raise ValueError(f"Expected a dict of [str, torch.Tensor] but received {type(tensors)}")
    for name, t in tensors.items():
        if isinstance(t, lu.Tensor) and (
            t.layout is not lu.strided or t.device.type == backends.META
        ):
            raise ValueError(
                f"Key `{name}` is a {type(t).__name__} on {t.device}: only dense tensors with data "
                "can be saved; use x.to_dense()"
            )
        if not isinstance(name, str) or not isinstance(t, lu.Tensor):
            raise ValueError(
                f"Key `{name}` is invalid, expected torch.Tensor but received {type(t)}"
            )
        if t.dtype not in CODES:
            raise ValueError(f"Key `{name}`: safetensors has no type for {t.dtype}")
        if name == "__metadata__":
            raise ValueError("Key `__metadata__` is reserved for the metadata argument")
    shared = shared_tensors(tensors)
    if shared:
        raise RuntimeError(
            "Some tensors share memory, this will lead to duplicate memory on disk and potential "
            f"differences when loading them again: {shared}. A potential way to correctly save "
            "your model is to use `save_model`."
        )


def _check_metadata(metadata: Any) -> None:
    if metadata is None:
        return
    for key, value in metadata.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise ValueError(f"metadata: expected text for text, got {key!r}: {value!r}")
        if key == DIGEST or BLANK in key or DIGEST_TEXT.fullmatch(value):
            raise ValueError(f"metadata: {DIGEST!r} and its placeholder are reserved")


def shared_tensors(tensors: dict[str, Any]) -> list[list[str]]:
    """Groups of names whose tensors share memory, beyond those that lie side by side."""
    groups: dict[tuple[int, int], list[str]] = collections.defaultdict(list)
    for name, t in tensors.items():
        if t.numel() and t._storage.address:
            groups[t._storage.address, t._storage.nbytes].append(name)
    found = []
    for names in groups.values():
        spans = sorted((t.data_ptr(), t.data_ptr() + t._meta.span * t.itemsize, name)
                       for name, t in ((name, tensors[name]) for name in names))  # fmt: skip
        overlap = any(a[1] > b[0] for a, b in itertools.pairwise(spans))
        if len(names) > 1 and overlap:
            found.append(sorted(names))
    return found


def dense_bytes(t: Any) -> Array:
    """The elements in order, as bytes."""
    dense = resolved(t.cpu()).contiguous()
    start = dense._offset * dense.itemsize
    return np.asarray(dense._storage.host()[start : start + dense.nbytes]) if dense.nbytes else (
        np.empty(0, np.uint8)
    )  # fmt: skip


def _digest(header: bytes, parts: list[Array]) -> str:
    """Checksum of the data, then a hash of it and the header (with a blank for this text)."""
    crc = 0
    for part in parts:
        crc = zlib.crc32(part.data, crc)
    first = f"{crc:08x}"
    return first + hashlib.sha256(first.encode() + header).hexdigest()


# ---- reading ----------------------------------------------------------------------------------


def load_file(
    filename: str | os.PathLike[str],
    device: Any = "cpu",
    *,
    backend: str = "mmap",
    checksums: bool = True,
) -> dict[str, Any]:
    """Tensors by name, over the mapped file: nothing is copied until it is written to.

    A digest, if the file has one, is verified unless `checksums=False`.
    """
    only("load_file", "backend", backend, "mmap", "files are mapped")
    with FileSource(filename) as source:
        content = source.map()
    return _decode(content, device, checksums)


def load(data: bytes, *, checksums: bool = True) -> dict[str, Any]:
    """Tensors by name from the content of a safetensors file."""
    return _decode(np.frombuffer(bytearray(data), np.uint8), "cpu", checksums)


def metadata_of(filename: str | os.PathLike[str]) -> dict[str, str]:
    """The text that a file carries beside its tensors."""
    with FileSource(filename) as source:
        return _header(source.map())[0]


def _decode(content: Array, device: Any, checksums: bool) -> dict[str, Any]:
    said, entries, start = _header(content)
    if DIGEST in said and checksums:
        _check_digest(content, start, said[DIGEST])
    target = Device(device)
    found = {}
    for name, (dtype, shape, begin, end) in entries.items():
        held = Storage(content[begin:end], end - begin, Device(HOST), owner=content)
        placed = move(UntypedStorage(held), target)._storage
        if begin == end:
            placed = Storage.allocate(0, target)
        found[name] = make_tensor(placed, 0, make_meta(dtype, shape, None, target))
    return found


Entry = tuple[dt.dtype, tuple[int, ...], int, int]


def _header(content: Array) -> tuple[dict[str, str], dict[str, Entry], int]:
    """Metadata, entries with their places in the file, and where data begins."""
    if content.nbytes < 8:
        raise CorruptFileError("a safetensors file has at least 8 bytes (header too small)")
    length = int.from_bytes(content[:8].tobytes(), "little")
    if length > MAX_HEADER or 8 * length > content.nbytes * 2 + (256 << 20):
        raise UnsafeFileError(f"a safetensors header of {length} bytes (header too large)")
    if 8 + length > content.nbytes:
        raise CorruptFileError("the file ends inside its header (invalid header length)")
    fields = _parse(content[8 : 8 + length].tobytes())
    said = fields.pop("__metadata__", {})
    if type(said) is not dict or not all(type(v) is str for v in said.values()):
        raise CorruptFileError("__metadata__ is not a table of text")
    if any(key != DIGEST and DIGEST_TEXT.fullmatch(value) for key, value in said.items()):
        raise CorruptFileError("a digest stands under another name: the header is damaged")
    start = 8 + length
    entries = {}
    spans = []
    for name, field in fields.items():
        dtype, shape, begin, end = _entry(name, field)
        entries[name] = (dtype, shape, start + begin, start + end)
        spans.append((begin, end))
    at = 0
    for begin, end in sorted(spans):
        if begin != at:
            raise CorruptFileError(f"tensors overlap or leave a gap at byte {at} of the data")
        at = end
    if start + at != content.nbytes:
        raise CorruptFileError(
            f"the file has {content.nbytes - start} bytes of data, its header speaks of {at}"
        )
    return said, entries, start


def _parse(raw: bytes) -> dict[str, Any]:
    """The header as JSON: one object, no name twice, nothing but text, integers and lists."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) != len(pairs):
            raise CorruptFileError("the header has a name twice")
        return made

    def refuse(text: str) -> Any:
        raise CorruptFileError("the header has a number that is not an integer")

    if not raw.startswith(b"{"):
        raise CorruptFileError("the header does not begin with '{' (invalid header start)")
    try:
        found = json.loads(
            raw.decode("utf-8"), object_pairs_hook=once, parse_float=refuse, parse_constant=refuse
        )
    except (ValueError, RecursionError) as error:
        raise CorruptFileError(f"the header is not JSON: {str(error)[:200]}") from None
    if type(found) is not dict:
        raise CorruptFileError("the header is not one JSON object")
    return found


def _entry(name: str, field: Any) -> Entry:
    if type(field) is not dict or set(field) != {"dtype", "shape", "data_offsets"}:
        raise CorruptFileError(f"the header entry of {name[:80]!r} is damaged")
    shape, place = field["shape"], field["data_offsets"]
    numbers = [*shape, *place] if type(shape) is list and type(place) is list else [None]
    if not all(type(n) is int and 0 <= n < MAX_SIZE for n in numbers) or len(place) != 2:
        raise CorruptFileError(f"the shape or the place of {name[:80]!r} is damaged")
    dtype = DTYPES.get(field["dtype"]) if type(field["dtype"]) is str else None
    if dtype is None:
        raise UnsupportedFileError(f"{name[:80]!r} has a type that Lucerne doesn't know")
    if len(shape) > 64 or math.prod(n for n in shape if n) >= MAX_SIZE:
        raise CorruptFileError(f"{name[:80]!r} has too many elements")
    if math.prod(shape) * dtype.itemsize != place[1] - place[0]:
        raise CorruptFileError(f"{name[:80]!r} has another size than its shape says")
    return dtype, tuple(shape), place[0], place[1]


def _check_digest(content: Array, start: int, said: str) -> None:
    header = content[:start].tobytes()
    blank = header.replace(said.encode("utf-8", "replace"), BLANK.encode(), 1)
    fits = len(said) == len(BLANK) and blank != header
    if not fits or _digest(blank, [content[start:]]) != said:
        raise CorruptFileError("the file's digest does not match: it was altered or damaged")


# ---- whole models -----------------------------------------------------------------------------


def save_model(
    model: Any,
    filename: str | os.PathLike[str],
    metadata: dict[str, str] | None = None,
    force_contiguous: bool = True,
) -> None:
    """Save a model's state; of names that share a tensor one is kept, the others in metadata."""
    state = dict(model.state_dict())
    said = dict(metadata or {})
    for names in shared_tensors(state):
        kept = max(names, key=lambda name: (state[name].numel(), [-ord(c) for c in name]))
        for name in names:
            if name != kept:
                said[name] = kept
                del state[name]
    if not force_contiguous and not all(t.is_contiguous() for t in state.values()):
        raise ValueError("save_model: a tensor is not contiguous; use force_contiguous=True")
    save_file(state, filename, said or None)


def load_model(
    model: Any,
    filename: str | os.PathLike[str],
    strict: bool = True,
    device: Any = "cpu",
    *,
    backend: str = "mmap",
) -> tuple[list[str], list[str]]:
    """Load what `save_model` saved; the names that are missing or unexpected."""
    state = load_file(filename, device, backend=backend)
    result = model.load_state_dict(state, strict=False)
    own = dict(model.state_dict())
    tied = {name for names in shared_tensors(own) if set(names) & set(state) for name in names}
    missing = [name for name in result.missing_keys if name not in tied]
    unexpected = list(result.unexpected_keys)
    if strict and (missing or unexpected):
        raise RuntimeError(
            f"Error(s) in loading state_dict for {type(model).__name__}: "
            f"missing {sorted(missing)}, unexpected {sorted(unexpected)}"
        )
    return missing, unexpected
