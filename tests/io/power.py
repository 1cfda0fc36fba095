"""Power loss and full disks, by a model: `python -m tests.io.power`.

A save runs once while its calls are recorded. Then the model cuts the power after each of them and
makes every state a disk may legally be in: what was synced is there; what was written later is
there, missing, or zeros; names that were changed after the folder's last sync are changed or not,
in any combination. In each the checkpoint must be the old or the new one, and the new one once the
save has returned. Last, every call fails once, with the disk full or broken.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lucerne
from lucerne._src.io import atomic
from lucerne.io import safetensors
from lucerne.run_state import RunState
from lucerne.serialization import LoadError

Event = tuple[Any, ...]


class Recorder(atomic.FileOps):
    """Does everything, and writes it down."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._paths: dict[int, str] = {}

    def create(self, path: str) -> int:
        fd = super().create(path)
        self._paths[fd] = path
        self.events.append(("create", path))
        return fd

    def write(self, fd: int, data: memoryview) -> int:
        done = super().write(fd, data[:4096])
        self.events.append(("write", self._paths[fd], bytes(data[:done])))
        return done

    def sync(self, fd: int) -> None:
        super().sync(fd)
        self.events.append(("sync", self._paths[fd]))

    def replace(self, source: str, target: str) -> None:
        super().replace(source, target)
        self.events.append(("replace", source, target))

    def sync_folder(self, folder: str) -> None:
        super().sync_folder(folder)
        self.events.append(("sync_folder", folder))

    def remove(self, path: str) -> None:
        super().remove(path)
        self.events.append(("remove", path))


class Forgetful(Recorder):
    """A save that forgets to sync data: the model must find fault with it."""

    def sync(self, fd: int) -> None:
        """Nothing."""


class Hasty(Recorder):
    """A save that forgets to sync the folder."""

    def sync_folder(self, folder: str) -> None:
        """Nothing."""


class Inode:
    def __init__(self, durable: bytes = b"") -> None:
        self.durable, self.written = durable, durable

    def contents(self) -> list[bytes]:
        """What may be found after a power loss."""
        if self.written == self.durable:
            return [self.durable]
        half = self.written[: (len(self.durable) + len(self.written)) // 2]
        return [self.durable, self.written, half, bytes(len(self.written))]


def states(before: dict[str, bytes], events: list[Event]) -> Iterator[dict[str, bytes]]:
    """Every folder that may be found after these events and a power loss."""
    names = {path: Inode(raw) for path, raw in before.items()}
    durable = dict(names)
    pending: list[Event] = []
    inodes: dict[str, Inode] = {}
    for event in events:
        match event:
            case ("create", path):
                inodes[path] = Inode()
                pending.append(("link", path, inodes[path]))
            case ("write", path, data):
                inodes[path].written += data
            case ("sync", path):
                inodes[path].durable = inodes[path].written
            case ("replace", source, target):
                pending.append(("move", source, target, inodes.pop(source)))
            case ("remove", path):
                pending.append(("unlink", path))
            case ("sync_folder", _):
                durable = _apply(durable, pending)
                pending = []
    for chosen in itertools.product((False, True), repeat=len(pending)):
        folder = _apply(durable, [p for p, yes in zip(pending, chosen, strict=True) if yes])
        found = list(folder.items())
        for contents in itertools.product(*(inode.contents() for _, inode in found)):
            yield {path: raw for (path, _), raw in zip(found, contents, strict=True)}


def _apply(names: dict[str, Inode], changes: list[Event]) -> dict[str, Inode]:
    made = dict(names)
    for change in changes:
        if change[0] == "link":
            made[change[1]] = change[2]
        elif change[0] == "move":
            made.pop(change[1], None)
            made[change[2]] = change[3]
        else:
            made.pop(change[1], None)
    return made


# ---- what is saved ----------------------------------------------------------------------------


def save_checkpoint(folder: Path, n: int, ops: atomic.FileOps) -> None:
    lucerne.save({"w": lucerne.full((3000,), float(n))}, folder / "x.pt", ops=ops)


def load_checkpoint(folder: Path) -> int:
    return int(lucerne.load(folder / "x.pt")["w"][-1].item())


def save_tensors(folder: Path, n: int, ops: atomic.FileOps) -> None:
    tensors = {"w": lucerne.full((3000,), float(n))}
    safetensors.save_file(tensors, folder / "x.safetensors", digest=True, ops=ops)


def load_tensors(folder: Path) -> int:
    return int(safetensors.load_file(folder / "x.safetensors")["w"][-1].item())


def save_run(folder: Path, n: int, ops: atomic.FileOps) -> None:
    RunState(keep=2).save(folder, ops=ops, n=n)


def load_run(folder: Path) -> int:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a damaged newest one is passed over, and said so
        return int(RunState().restore(folder)["n"])


KINDS: dict[str, tuple[Callable[[Path, int, atomic.FileOps], None], Callable[[Path], int]]] = {
    "checkpoint": (save_checkpoint, load_checkpoint),
    "safetensors": (save_tensors, load_tensors),
    "run_state": (save_run, load_run),
}


def _read(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.iterdir()}


def _found(state: dict[str, bytes], load: Callable[[Path], int]) -> int | None:
    """Which save a folder in this state holds (None: none that loads)."""
    with tempfile.TemporaryDirectory() as folder:
        for path, raw in state.items():
            (Path(folder) / Path(path).name).write_bytes(raw)
        try:
            return load(Path(folder))
        except (LoadError, OSError):
            return None


def cut_power(kind: str, recorder: Recorder, saves: int = 3) -> dict[str, Any]:
    """All states of the last save of several; those that lose something."""
    save, load = KINDS[kind]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for n in range(1, saves):
            save(place, n, atomic.FileOps())
        before = _read(place)
        save(place, saves, recorder)
    answers: dict[frozenset[tuple[str, bytes]], int | None] = {}
    bad, count = [], 0
    for length in range(len(recorder.events) + 1):
        allowed = (saves,) if length == len(recorder.events) else (saves - 1, saves)
        for state in states(before, recorder.events[:length]):
            count += 1
            key = frozenset(state.items())
            if key not in answers:
                answers[key] = _found(state, load)
            if answers[key] not in allowed:
                bad.append(f"{kind}: after {length} calls: {answers[key]} instead of {allowed}")
    return {"calls": len(recorder.events), "states": count, "different": len(answers), "bad": bad}


class Failing(atomic.FileOps):
    """Fails at the n-th call, with a given error."""

    def __init__(self, at: int, code: int) -> None:
        self.left, self.code, self.failed = at, code, ""

    def _count(self, what: str) -> None:
        self.left -= 1
        if self.left == 0:
            self.failed = what
            raise OSError(self.code, os.strerror(self.code))

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in ("create", "write", "chmod", "sync", "close", "replace", "sync_folder"):
            return found

        def call(*args: Any) -> Any:
            if name == "write" and self.left == 1:
                os.write(args[0], args[1][:100])  # some of it fits
            self._count(name)
            return found(*args) if name != "write" else os.write(args[0], args[1][:4096])

        return call


def fail_each_call(kind: str) -> dict[str, Any]:
    """Let every call fail once; the old checkpoint must stay, and nothing else."""
    save, load = KINDS[kind]
    bad, count = [], 0
    for code in (errno.ENOSPC, errno.EIO):
        for at in itertools.count(1):
            with tempfile.TemporaryDirectory() as folder:
                place = Path(folder)
                save(place, 1, atomic.FileOps())
                ops = Failing(at, code)
                try:
                    save(place, 2, ops)
                except OSError as error:
                    if error.errno != code:
                        bad.append(f"{kind}: call {at}: {error!r}")
                if not ops.failed:
                    break
                count += 1
                found = load(place)
                late = ops.failed in ("close", "sync_folder")
                if found != 1 and not (late and found == 2):
                    bad.append(f"{kind}: call {at} ({ops.failed}): {found}")
                if any(path.name.endswith(atomic.SUFFIX) for path in place.iterdir()):
                    bad.append(f"{kind}: call {at} ({ops.failed}): a temporary file is left")
    return {"failures": count, "bad": bad}


def run() -> dict[str, Any]:
    return {
        kind: {"power": cut_power(kind, Recorder()), "failures": fail_each_call(kind)}
        for kind in KINDS
    }


def main() -> None:
    report = run()
    print(json.dumps(report, indent=1))
    sys.exit(any(part["bad"] for found in report.values() for part in found.values()))


if __name__ == "__main__":
    main()
