"""Saving and loading, in the spelling of torch's distributed checkpoint (DCP)."""

from __future__ import annotations

import concurrent.futures
import os
import secrets
import threading
from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.distributed.checkpoint.layout import (
    MANIFEST,
    FileBuilder,
    FileReaders,
    Manifest,
    StoredChunk,
    StoredValue,
    read_manifest,
    write_manifest,
)
from lucerne._src.distributed.checkpoint.parts import (
    RankParts,
    TensorPart,
    flatten,
    is_shared,
    refill,
    whole,
)
from lucerne._src.distributed.mesh.dtensor import blocks, refill_blocks
from lucerne._src.distributed.processes import objects
from lucerne._src.distributed.processes.groups import member, new_group
from lucerne._src.distributed.processes.points import all_gather_object
from lucerne._src.distributed.processes.values import Flat
from lucerne._src.distributed.processes.world import is_initialized
from lucerne._src.io import atomic
from lucerne._src.io.errors import CorruptFileError, LoadError
from lucerne._src.tensor import api as lu


class CheckpointException(RuntimeError):  # noqa: N818  (torch's name)
    """A save or load failed on some rank; `failures` has the text of each."""

    def __init__(self, msg: str, failures: dict[int, str]) -> None:
        super().__init__(f"{msg} " + "; ".join(f"rank {k}: {v}" for k, v in failures.items()))
        self.failures = failures


class FileSystemWriter:
    """Where a checkpoint is written: a folder that all ranks see."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        single_file_per_rank: bool = True,
        sync_files: bool = True,
        thread_count: int = 1,
        per_thread_copy_ahead: int = 10_000_000,
        cache_staged_state_dict: bool = False,
        overwrite: bool = True,
    ) -> None:
        if not single_file_per_rank or not sync_files or cache_staged_state_dict:
            raise ValueError(
                "FileSystemWriter: each rank writes one file, which is forced to the disk before "
                "the manifest names it, and nothing is cached; leave single_file_per_rank, "
                "sync_files and cache_staged_state_dict out"
            )
        if thread_count < 1 or per_thread_copy_ahead < 0:
            raise ValueError("FileSystemWriter: thread_count is positive")
        self.path = os.fspath(path)
        self.overwrite = overwrite

    def check(self) -> None:
        if not self.overwrite and os.path.exists(os.path.join(self.path, MANIFEST)):
            raise FileExistsError(f"{self.path} has a checkpoint, and overwrite=False")


class FileSystemReader:
    """Where a checkpoint is read from."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)

    def read_metadata(self) -> Manifest:
        """What is in it."""
        return read_manifest(self.path)


class _Ranks:
    """The ranks that save or load together; one alone without a group."""

    def __init__(self, group: Any, alone: bool) -> None:
        pg = None if alone or not is_initialized() else member(group)
        self.group = pg
        self.rank, self.size = (0, 1) if pg is None else (pg.rank(), pg.size())

    def gather(self, mine: Any) -> list[Any]:
        if self.group is None:
            return [mine]
        found: list[Any] = [None] * self.size
        all_gather_object(found, mine, self.group)
        return found

    def step(self, what: str, work: Any) -> list[Any]:
        """Do something on each rank; all fail if one does."""
        try:
            mine = ("", work())
        except Exception as error:
            mine = (f"{type(error).__name__}: {error}", None)
            if self.group is None:
                raise
        found = self.gather(mine)
        wrong = {k: text for k, (text, _) in enumerate(found) if text}
        if wrong:
            raise CheckpointException(what, wrong)
        return [value for _, value in found]


def save(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: str | os.PathLike[str] | None = None,
    storage_writer: FileSystemWriter | None = None,
    planner: Any = None,
    process_group: Any = None,
    no_dist: bool = False,
) -> Manifest:
    """Save the state of all ranks as one checkpoint. Either all of it is there afterwards, or the
    one before.

    A tensor that several ranks have under one name is written by one of them; a `TensorPart` is the
    block of its rank.

    >>> import tempfile, lucerne as torch, lucerne.distributed.checkpoint as dcp
    >>> folder = tempfile.mkdtemp()
    >>> _ = dcp.save({"w": torch.ones(2), "step": 3}, checkpoint_id=folder)
    >>> state = {"w": torch.zeros(2), "step": 0}
    >>> dcp.load(state, checkpoint_id=folder)
    >>> state
    {'w': tensor([1., 1.]), 'step': 3}
    """
    _no_planner(planner)
    writer = _writer(checkpoint_id, storage_writer)
    ranks = _Ranks(process_group, no_dist)
    return _save(flatten(state_dict), writer, ranks)


def _no_planner(planner: Any) -> None:
    if planner is not None:
        raise NotImplementedError("planner: there is one way to lay out a checkpoint; leave it out")


def _writer(place: Any, writer: FileSystemWriter | None) -> FileSystemWriter:
    if writer is not None:
        return writer
    if place is None:
        raise RuntimeError("save needs a checkpoint_id (a folder), or a storage_writer")
    return FileSystemWriter(place)


def _save(values: dict[str, Any], writer: FileSystemWriter, ranks: _Ranks) -> Manifest:
    folder = writer.path

    def describe() -> tuple[str, dict[str, int]]:
        writer.check()
        os.makedirs(folder, exist_ok=True)
        return secrets.token_hex(6), {name: _size(value) for name, value in values.items()}

    plans = ranks.step("the checkpoint was not begun:", describe)
    mine = _share(values, [plan[1] for plan in plans], ranks.rank)
    name = f"rank-{ranks.rank:05d}-{plans[0][0]}.data"

    def write() -> tuple[dict[str, Any], int]:
        file = FileBuilder(name)
        rows = {key: _row(file, values[key]) for key in mine}
        file.write(folder)
        return rows, file.at

    written = ranks.step("the checkpoint was not written:", write)
    manifest = _merge(written, plans[0][0])

    def finish() -> None:
        if ranks.rank == 0:
            write_manifest(folder, manifest)
            _forget_old(folder, manifest)

    ranks.step("the checkpoint was not finished:", finish)
    return manifest


def _size(value: Any) -> int:
    """Bytes of a value that any rank may write; -1: a part, which its own rank writes."""
    if isinstance(value, TensorPart) or is_shared(value):
        return -1
    return value.numel() * value.element_size() if isinstance(value, lu.Tensor) else 0


def _share(values: dict[str, Any], plans: list[dict[str, int]], rank: int) -> list[str]:
    """The names this rank writes: its parts, and its share of what several ranks have."""
    load = [0] * len(plans)
    found = [name for name in values if plans[rank][name] < 0]
    names = sorted({name for plan in plans for name, size in plan.items() if size >= 0})
    for name in sorted(names, key=lambda n: (-max(p.get(n, 0) for p in plans), n)):
        owners = [k for k, plan in enumerate(plans) if plan.get(name, -1) >= 0]
        size = max(plans[k][name] for k in owners)
        owner = min(owners, key=lambda k: (load[k], k)) if size else owners[0]
        load[owner] += size
        if owner == rank:
            found.append(name)
    return found


def _row(file: FileBuilder, value: Any) -> Any:
    """What the manifest says of a value, whose blocks are added to the file."""
    if is_shared(value):
        found = RankParts(value)
        chunks = [_chunk(file, part) for part in found.parts]
        return _name(found.dtype), found.shape, chunks
    if isinstance(value, lu.Tensor):
        value = whole(value)
    if isinstance(value, TensorPart):
        return _name(value.tensor.dtype), value.shape, [_chunk(file, value)]
    raw = memoryview(objects.to_bytes(value))
    return "", [], [vars(file.add(raw, [], []))]


def _name(dtype: Any) -> str:
    return str(dtype).rpartition(".")[2]


def _chunk(file: FileBuilder, part: TensorPart) -> dict[str, Any]:
    array = Flat(part.tensor.detach().cpu()).array
    raw = memoryview(array.view(np.uint8).data) if array.size else memoryview(b"")
    return vars(file.add(raw, part.offsets, part.sizes))


def _merge(written: list[Any], nonce: str) -> Manifest:
    values: dict[str, StoredValue] = {}
    files = {}
    for rank, (rows, size) in enumerate(written):
        files[f"rank-{rank:05d}-{nonce}.data"] = size
        for name, (kind, shape, chunks) in rows.items():
            known = values.setdefault(name, StoredValue(kind, shape))
            if (known.dtype, known.shape) != (kind, shape):
                raise ValueError(f"ranks save {name!r} with different dtypes or shapes")
            known.chunks.extend(StoredChunk(**chunk) for chunk in chunks)
    return Manifest(values, files)


def _forget_old(folder: str, manifest: Manifest) -> None:
    """Files that the new manifest does not name: of the checkpoint before, or of killed saves."""
    atomic.remove_stale_in(folder)
    for name in os.listdir(folder):
        ours = name.startswith("rank-") and name.endswith(".data")
        if ours and name not in manifest.files:
            try:
                os.unlink(os.path.join(folder, name))
            except OSError:
                continue


class _Asynchronous:
    group: Any = None
    world: Any = None


def async_save(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: str | os.PathLike[str] | None = None,
    storage_writer: FileSystemWriter | None = None,
    planner: Any = None,
    process_group: Any = None,
    no_dist: bool = False,
) -> concurrent.futures.Future[Manifest]:
    """Like `save`, but only copies the state now; a thread writes it while training goes on."""
    _no_planner(planner)
    writer = _writer(checkpoint_id, storage_writer)
    ranks = _Ranks(process_group, no_dist)
    if ranks.group is not None:
        if _Asynchronous.world is not ranks.group:  # a thread needs a group of its own
            _Asynchronous.world, _Asynchronous.group = ranks.group, new_group(ranks.group.ranks)
        ranks.group = _Asynchronous.group
    copies = {name: _copy(value) for name, value in flatten(state_dict).items()}
    done: concurrent.futures.Future[Manifest] = concurrent.futures.Future()

    def work() -> None:
        try:
            done.set_result(_save(copies, writer, ranks))
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=work, name="lucerne checkpoint", daemon=False).start()
    return done


def _copy(value: Any) -> Any:
    if isinstance(value, TensorPart):
        return TensorPart(value.tensor.detach().clone(), value.shape, value.offsets)
    if isinstance(value, lu.Tensor):
        return value.detach().clone()
    return objects.from_bytes(objects.to_bytes(value))


# ---- loading -----------------------------------------------------------------------------------


def load(
    state_dict: dict[str, Any],
    *,
    checkpoint_id: str | os.PathLike[str] | None = None,
    storage_reader: FileSystemReader | None = None,
    planner: Any = None,
    process_group: Any = None,
    no_dist: bool = False,
) -> None:
    """Fill a state from a checkpoint, which any number of ranks may have saved: tensors in place,
    other values by the ones that were saved, objects with `load_state_dict` by it."""
    _no_planner(planner)
    if storage_reader is None:
        if checkpoint_id is None:
            raise RuntimeError("load needs a checkpoint_id (a folder), or a storage_reader")
        storage_reader = FileSystemReader(checkpoint_id)
    folder = storage_reader.path
    ranks = _Ranks(process_group, no_dist)

    found: list[Any] = []

    def work() -> None:
        manifest = read_manifest(folder)
        files = FileReaders(folder, manifest.files)
        try:
            found.extend(_found(state_dict, manifest, files, folder))
        finally:
            files.close()

    # Nothing is changed before all was read and checked, by every rank.
    ranks.step("the checkpoint was not loaded:", work)
    staged, plain = found
    ranks.step("the checkpoint was not loaded:", lambda: _fill(state_dict, staged, plain))


def _found(state: dict[str, Any], manifest: Manifest, files: FileReaders, folder: str) -> Any:
    """New values for tensors, and other values by name."""
    wanted = flatten(state)
    missing = [name for name in wanted if name not in manifest.values]
    if missing:
        raise LoadError(f"the checkpoint in {folder!r} has no {', '.join(missing[:10])}")
    plain: dict[str, Any] = {}
    staged: list[tuple[Any, Any]] = []
    for name, value in wanted.items():
        stored = manifest.values[name]
        if is_shared(value):
            rows = blocks(value, own=False)
            shape = [int(n) for n in value.shape]
            staged.append((value, [_read(name, shape, *row[:2], stored, files) for row in rows]))
        elif isinstance(value, lu.Tensor | TensorPart):
            part = whole(value) if isinstance(value, lu.Tensor) else value
            block = _read(name, part.shape, part.offsets, part.sizes, stored, files)
            staged.append((part.tensor, block))
        else:
            if stored.dtype or len(stored.chunks) != 1:
                raise LoadError(f"{name!r} is a tensor in the checkpoint, and none in the state")
            plain[name] = objects.from_bytes(files.read(stored.chunks[0]))
    return staged, plain


def _fill(state: dict[str, Any], staged: list[tuple[Any, Any]], plain: dict[str, Any]) -> None:
    with lu.no_grad():
        for tensor, found in staged:
            if isinstance(found, list):
                refill_blocks(tensor, found)
            else:
                tensor.copy_(found)
    refill(state, plain)


def _read(
    name: str,
    shape: list[int],
    offsets: list[int],
    sizes: list[int],
    stored: StoredValue,
    files: FileReaders,
) -> Any:
    """The block of a tensor, put together from the chunks that it meets."""
    if not stored.dtype or stored.shape != shape:
        raise LoadError(f"{name!r} has the shape {stored.shape} in the checkpoint, not {shape}")
    dtype = getattr(lu, stored.dtype, None)
    if not isinstance(dtype, dt.dtype):
        raise CorruptFileError(f"{name!r} has the dtype {stored.dtype!r}, which does not exist")
    made = lu.empty(sizes, dtype=dtype)
    covered = 0
    for chunk in stored.chunks:
        low = [max(a, b) for a, b in zip(offsets, chunk.offsets, strict=True)]
        high = [
            min(a + n, b + m)
            for a, n, b, m in zip(offsets, sizes, chunk.offsets, chunk.sizes, strict=True)
        ]
        if any(b <= a for a, b in zip(low, high, strict=True)):
            continue
        block = _tensor(files.read(chunk), dtype, chunk.sizes, name)
        source = tuple(
            slice(a - o, b - o) for a, b, o in zip(low, high, chunk.offsets, strict=True)
        )
        target = tuple(slice(a - o, b - o) for a, b, o in zip(low, high, offsets, strict=True))
        made[target] = block[source]
        covered += int(np.prod([b - a for a, b in zip(low, high, strict=True)], dtype=np.int64))
    if covered != made.numel():
        raise CorruptFileError(f"chunks of {name!r} have {covered} of {made.numel()} values")
    return made


def _tensor(raw: bytes, dtype: Any, sizes: list[int], name: str) -> Any:
    count = int(np.prod(sizes, dtype=np.int64))
    made = lu.empty(sizes, dtype=dtype)
    if len(raw) != count * made.element_size():
        raise CorruptFileError(f"a chunk of {name!r} has {len(raw)} bytes for {count} values")
    if count:
        flat = Flat(made)
        flat.array[...] = np.frombuffer(raw, flat.array.dtype)
    return made
