"""`save` and `load`: which format a file has, and who reads or writes it."""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from lucerne._src import backends
from lucerne._src.base.device import device as Device
from lucerne._src.base.errors import OutOfMemoryError
from lucerne._src.base.process.error_notes import entry_failed
from lucerne._src.io import archive, archive_writer, atomic, legacy, options, safetensors
from lucerne._src.io.errors import (
    CorruptFileError,
    LoadError,
    UnsafeFileError,
    UnsupportedFileError,
    UsersError,
)
from lucerne._src.io.machine import PickleBudget, PickleMachine
from lucerne._src.io.pickling import Pickler
from lucerne._src.io.rebuild import LoadContext, set_state
from lucerne._src.io.scan import global_names
from lucerne._src.io.source import ByteSource, FileSource, StreamSource, open_source
from lucerne._src.io.storages import (
    StorageTable,
    host_storage,
    mapped_storage,
    place_for,
    skips_bytes,
)
from lucerne._src.tensor.storage import Storage

SLACK = 64 << 20
"""A file may take this much memory and twice its size (`load(memory_limit=...)`)."""
ENCODINGS = ("utf-8", "ascii", "latin1", "bytes")
FORMATS = {
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    b"\x1f\x8b": "compressed by gzip",
    b"\x89HDF\r\n": "an HDF5 file",
    b"Rar!": "a RAR archive",
    b"\x93NUMPY": "a NumPy array (numpy.load reads it)",
    b"version https://git-lfs": "a Git LFS pointer, not the file itself (git lfs pull gets it)",
}
"""What else a file may be, by how it begins."""


def load(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    checksums: bool = True,
    memory_limit: int | None = None,
    **pickle_load_args: Any,
) -> Any:
    """Load what `save` (ours or torch's) wrote, without ever running code from the file.

    There is no unsafe way: `weights_only=False` loads no more, and the error says so. `mmap=True`
    maps the file instead of reading it. `checksums=False` doesn't read tensors just to compare
    checksums. `memory_limit` is how many bytes loading may take (default: twice the file and 64
    MB).

    Raises `LoadError` or a kind of it for whatever is wrong with the file.

    >>> import io, lucerne as torch
    >>> f = io.BytesIO()
    >>> torch.save({"w": torch.ones(2)}, f)
    >>> _ = f.seek(0)
    >>> torch.load(f)
    {'w': tensor([1., 1.])}
    """
    if pickle_module is not None and getattr(pickle_module, "__name__", "") != "pickle":
        raise ValueError(
            "load: pickle_module is not used, because Lucerne reads checkpoints with a machine of "
            "its own that can't run code. Leave the argument out"
        )
    encoding = pickle_load_args.pop("encoding", "utf-8")
    if encoding not in ENCODINGS or pickle_load_args:
        raise TypeError(
            f"load: expected encoding in {ENCODINGS} and no other options of pickle, got "
            f"encoding={encoding!r}, {pickle_load_args}"
        )
    if mmap and not isinstance(f, str | os.PathLike):
        raise ValueError("f must be a string filename in order to use mmap argument")
    if isinstance(f, str | os.PathLike) and os.fspath(f).endswith(".safetensors"):
        device = map_location if isinstance(map_location, str | Device) else "cpu"
        return safetensors.load_file(f, device, checksums=checksums)
    try:
        with open_source(f) as source:
            reader = FileReader(source, map_location, bool(mmap), checksums, memory_limit, encoding)
            return reader.read()
    except Exception as error:
        if isinstance(error, UnsafeFileError) and weights_only is False:
            raise UnsafeFileError(
                f"{error} weights_only=False does not change that: lucerne.load never runs code "
                "from a file"
            ) from None
        entry_failed(error)
        raise


@contextmanager
def only_load_errors() -> Iterator[None]:
    """Whatever goes wrong while a file is interpreted is the file's fault, and is said so."""
    try:
        yield
    except (LoadError, OSError, MemoryError, OutOfMemoryError):
        raise
    except UsersError as error:
        raise error.error from None
    except Exception as error:
        raise CorruptFileError(f"the file is damaged ({type(error).__name__}: {error})") from error


class FileReader:
    """One call of `load`."""

    context_of = LoadContext
    set_state = staticmethod(set_state)

    def __init__(
        self,
        source: ByteSource,
        map_location: Any,
        mmap: bool,
        checksums: bool,
        memory_limit: int | None,
        encoding: str,
    ) -> None:
        self.source, self.map_location, self.encoding = source, map_location, encoding
        self.checksums = checksums
        self.limit = 2 * source.size + SLACK if memory_limit is None else memory_limit
        self.budget = PickleBudget(max(self.limit - SLACK // 4, SLACK // 8))
        self.mapped = source.map() if mmap and isinstance(source, FileSource) else None
        self.without_bytes = skips_bytes(map_location)
        place_for(map_location)  # complains about a wrong one before the file is looked at

    def read(self) -> Any:
        start = self.source.read(0, min(self.source.size, 512))
        if not start:
            raise CorruptFileError("the file is empty (Ran out of input)")
        if start.startswith(archive.LOCAL_MAGIC):
            return self._read_archive()
        if start.startswith(legacy.MAGIC):
            if self.mapped is not None:
                raise UnsupportedFileError(
                    "mmap can only be used with files saved with torch.save(...) of torch 1.6 or "
                    "newer; load without mmap=True"
                )
            return self._read_legacy()
        raise _not_a_checkpoint(start)

    def _read_legacy(self) -> Any:
        reader = legacy.LegacyReader(
            self.source, self.map_location, self.budget, self.limit, self.encoding
        )
        with only_load_errors():
            found = reader.read()
        if isinstance(self.source, StreamSource):
            self.source.leave_at(reader.end)
        elif reader.end != self.source.size:
            raise CorruptFileError(f"{self.source.size - reader.end} bytes follow the checkpoint")
        return found

    def _read_archive(self) -> Any:
        with only_load_errors():
            self.archive = archive.Archive(self.source)
            self._check_records()
            swap = self._byte_order() != sys.byteorder
            self.loaded: set[str] = set()
            storages = StorageTable(self._fetch, self.map_location, swap)
            context = self.context_of(storages, self.limit)
            pickled = self.archive.read("data.pkl", self.budget.left)
            self.budget.take(len(pickled))
            machine = PickleMachine(
                pickled,
                context.find,
                storages.persistent,
                self.set_state,
                self.budget,
                self.encoding,
            )
            found = machine.run()
            if machine.at != len(pickled):
                raise CorruptFileError("bytes follow the end of the pickle")
            self._check_rest()
        return found

    def _check_records(self) -> None:
        names = self.archive.records
        if "constants.pkl" in names or any(name.startswith("code/") for name in names):
            raise UnsupportedFileError(archive.TORCHSCRIPT)
        if "data.pkl" not in names:
            raise UnsupportedFileError("this zip archive is not a checkpoint: it has no data.pkl")
        for name in names:
            if not _is_known_record(name):
                raise UnsupportedFileError(
                    f"the archive has a record {name[:80]!r} that torch.save does not write"
                )
        if self._small("version", b"3\n").strip() not in (b"1", b"2", b"3"):
            raise UnsupportedFileError("the archive is of a version newer than 3")

    def _small(self, name: str, default: bytes) -> bytes:
        return self.archive.read(name, 4096) if name in self.archive.records else default

    def _byte_order(self) -> str:
        said = self._small("byteorder", b"").decode("ascii", "replace")
        if said in ("little", "big"):
            return said
        if said:
            raise CorruptFileError(f"unknown byte order {said[:20]!r}")
        wanted = options.get_default_load_endianness()
        if wanted is None or wanted is options.LoadEndianness.NATIVE:
            return sys.byteorder
        return wanted.name.lower()

    def _fetch(self, key: str, size: int, width: int) -> Storage:
        """The bytes of one storage; the record must have exactly the size the pickle names."""
        record = self.archive.records.get(f"data/{key}")
        if record is None:
            raise CorruptFileError(f"the archive has no record for storage {key[:40]!r}")
        if record.size // width != size:
            raise CorruptFileError(
                f"storage {key!r} is said to have {size * width} bytes, but has {record.size}"
            )
        self.budget.take(250)
        if self.without_bytes:
            return Storage.allocate(record.size, Device(backends.META))
        if self.mapped is not None:
            return mapped_storage(self.mapped[record.start : record.start + record.size])
        self.budget.take(record.size)
        made, view = host_storage(record.size)
        self.source.readinto(record.start, view)
        made.note_write()
        if self.checksums:
            archive.check_crc(record, zlib.crc32(view))
        self.loaded.add(record.name)
        return made

    def _check_rest(self) -> None:
        """Checksums of the records that loading had no reason to read."""
        for record in self.archive.records.values():
            if record.name not in self.loaded and record.name != "data.pkl" and self.checksums:
                self.archive.verify(record)


def _is_known_record(name: str) -> bool:
    if name in ("data.pkl", "version", "byteorder", ".format_version", ".storage_alignment"):
        return True
    folder, _, rest = name.partition("/")
    return (folder == "data" and rest.isascii() and rest.isdigit()) or folder == ".data"


def _not_a_checkpoint(start: bytes) -> LoadError:
    for magic, what in FORMATS.items():
        if start.startswith(magic):
            return UnsupportedFileError(f"this is no checkpoint: it is {what}")
    if start[257:262] == b"ustar":
        return UnsupportedFileError(
            "a tar archive (torch before 0.1.10, or a packed checkpoint): load and save it with a "
            "newer torch, or unpack it"
        )
    if start[:1] == b"\x80":
        return UnsafeFileError(
            "a bare pickle, not a checkpoint of torch.save: it could run any code, and isn't read"
        )
    return UnsupportedFileError(
        "the file is neither a checkpoint of torch.save nor one of lucerne.save. A safetensors "
        "file needs a name that ends in .safetensors, or lucerne.io.safetensors.load"
    )


def unsafe_globals(f: Any) -> list[str]:
    """Names in a checkpoint that neither the table nor the user knows."""
    with open_source(f) as source, only_load_errors():
        opened = archive.Archive(source)
        names = global_names(opened.read("data.pkl", source.size))
        context = LoadContext(StorageTable(_no_bytes, None), 0)
        return [f"{module}.{name}" for module, name in names if not context.knows(module, name)]


def _no_bytes(key: str, size: int, width: int) -> Storage:
    raise UnsafeFileError("storages are not read here")


def save(
    obj: Any,
    f: Any,
    pickle_module: Any = None,
    pickle_protocol: int = 2,
    _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
    *,
    ops: atomic.FileOps = atomic.OPS,
) -> None:
    """Save in torch's format, so that `torch.load(weights_only=True)` reads it bit for bit.

    A path is replaced in one step: after a crash, a power loss or a full disk it holds the old
    checkpoint or the new one, and never less. Open files are written to as they are.

    >>> import os, tempfile, lucerne as torch
    >>> path = os.path.join(tempfile.mkdtemp(), "w.pt")
    >>> torch.save({"w": torch.ones(2), "step": 3}, path)
    >>> torch.load(path)
    {'w': tensor([1., 1.]), 'step': 3}
    """
    if not _use_new_zipfile_serialization:
        raise ValueError(
            "save: the format of torch before 1.6 is not written, because it has no checksums. "
            "Leave _use_new_zipfile_serialization out: every torch since 1.6 reads the zip format"
        )
    if pickle_module is not None and getattr(pickle_module, "__name__", "") != "pickle":
        raise ValueError(
            "save: pickle_module is not used, because Lucerne writes checkpoints with a pickler of "
            "its own that takes only what can be loaded safely. Leave the argument out"
        )
    pickler = Pickler()
    pickled = pickler.dump(obj)
    payloads = [_host_bytes(storage) for storage in pickler.storages]

    if isinstance(f, str | os.PathLike):
        folder = os.path.splitext(os.path.basename(os.fspath(f)))[0] or "archive"
        folder = _clean_folder(folder)
        atomic.write_atomic(
            f, lambda write: archive_writer.write_checkpoint(write, folder, pickled, payloads), ops
        )
    elif hasattr(f, "write"):
        archive_writer.write_checkpoint(f.write, "archive", pickled, payloads)
    else:
        raise AttributeError(
            f"expected 'f' to be string, path, or a file-like object with a 'write' attribute, got "
            f"{type(f).__name__}"
        )


def _clean_folder(name: str) -> str:
    """The folder inside the archive, as torch names it: after the file."""
    usable = "\\" not in name and ":" not in name and name not in (".", "..") and "\0" not in name
    return name if usable and len(name.encode()) < 1024 else "archive"


def _host_bytes(storage: Storage) -> np.ndarray[Any, Any]:
    return storage.host() if storage.nbytes else np.empty(0, np.uint8)
