"""The state of a run, saved and restored by one call each, so that stopping leaves no trace."""

from __future__ import annotations

import hashlib
import os
import random
import re
from typing import Any

import numpy as np

from lucerne._src.base.process import notices
from lucerne._src.base.process.late_bindings import LateBindings
from lucerne._src.io import atomic, files
from lucerne._src.io.errors import CorruptFileError, LoadError, SaveError
from lucerne._src.tensor import api as lu

FORMAT = 1
NAME = re.compile(r"state-([0-9]{8,})\.pt")


class RunState:
    """Everything a training run needs to go on as if it had not been stopped.

    Parts are given by name: anything with `state_dict` and `load_state_dict` (models, optimizers,
    schedulers, scalers, loaders, averages), and generators of random numbers. `step` is yours to
    count with. The states of `lucerne`'s, Python's and NumPy's own generators are always included.

    `save(folder)` adds a checkpoint to a folder, keeps the last `keep` and removes older ones;
    `restore(folder)` takes the newest that is intact. A path that ends in `.pt` is one file,
    replaced in one step.

    In a process group all ranks call both. The checkpoint is one, written by rank 0: parts are
    those of rank 0, the states of the default generators those of each rank. Any number of ranks
    restores it; ranks that were not there draw numbers of their own, if the saved ones did.

    >>> import tempfile, lucerne as torch
    >>> from lucerne.run_state import RunState
    >>> folder = tempfile.mkdtemp()
    >>> model = torch.nn.Linear(2, 1)
    >>> state = RunState(model=model)
    >>> state.step = 10
    >>> state.save(folder, loss=0.5)
    >>> drawn = torch.rand(1)
    >>> state.restore(folder), state.step, torch.equal(torch.rand(1), drawn)
    ({'loss': 0.5}, 10, True)
    """

    def __init__(self, *, keep: int = 2, **parts: Any) -> None:
        if keep < 1:
            raise ValueError(f"RunState: keep must be at least 1, got {keep}")
        for name, part in parts.items():
            _saver(name, part)  # complains about parts without a state
        self.parts = parts
        self.keep = keep
        self.step = 0

    def state_dict(self) -> dict[str, Any]:
        """All states, as one object that `lucerne.save` can save."""
        return {
            "lucerne_run_state": FORMAT,
            "step": self.step,
            "parts": {name: _saver(name, part)() for name, part in self.parts.items()},
            "random": _random_states(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put every part and generator into a saved state.

        The names are compared before anything is changed.
        """
        saved = _check_state(state)
        missing, unexpected = set(self.parts) - set(saved), set(saved) - set(self.parts)
        if missing or unexpected:
            raise RuntimeError(
                f"restore: the checkpoint has parts {sorted(saved)}, this RunState has "
                f"{sorted(self.parts)}. Make it with the same parts"
            )
        for name, part in self.parts.items():
            _loader(part)(saved[name])
        self.step = state["step"]
        _set_random_states(_own_random(state))

    def save(
        self, path: str | os.PathLike[str], *, ops: atomic.FileOps = atomic.OPS, **extra: Any
    ) -> None:
        """Save everything, and `extra` with it. When it returns, the checkpoint is on disk."""
        content = {**self.state_dict(), "extra": extra}
        place = LateBindings.process_place()
        if place is None or place[1] == 1:
            self._write(os.fspath(path), content, ops)
            return
        content["ranks"] = LateBindings.process_gather(content["random"])
        problem = ""
        try:
            if place[0] == 0:
                self._write(os.fspath(path), content, ops)
        except (SaveError, OSError) as error:
            problem = f"{type(error).__name__}: {error}"
        problem = LateBindings.process_gather(problem)[0]
        if problem:
            raise SaveError(f"save: rank 0 could not write the checkpoint of all ranks: {problem}")

    def _write(self, target: str, content: dict[str, Any], ops: atomic.FileOps) -> None:
        if target.endswith((".pt", ".pth")):
            files.save(content, target, ops=ops)
            return
        os.makedirs(target, exist_ok=True)
        known = _checkpoints(target)
        number = known[-1][0] + 1 if known else 1
        files.save(content, os.path.join(target, f"state-{number:08d}.pt"), ops=ops)
        for _, old in known[: max(0, len(known) + 1 - self.keep)]:
            _forget(old, ops)
        atomic.remove_stale_in(target, ops)

    def restore(self, path: str | os.PathLike[str], map_location: Any = None) -> dict[str, Any]:
        """Restore everything from the newest intact checkpoint; the `extra` saved with it."""
        content = _load(os.fspath(path), map_location)
        self.load_state_dict(content)
        extra: dict[str, Any] = content.get("extra", {})
        return extra


def latest(path: str | os.PathLike[str]) -> str | None:
    """The newest checkpoint in a folder (None: there is none), whether it is intact or not.

    >>> import tempfile
    >>> from lucerne.run_state import latest
    >>> print(latest(tempfile.mkdtemp()))
    None
    """
    found = _checkpoints(os.fspath(path)) if os.path.isdir(path) else []
    return found[-1][1] if found else None


def _checkpoints(folder: str) -> list[tuple[int, str]]:
    """Number and path of the checkpoints in a folder, oldest first."""
    found = []
    for name in os.listdir(folder):
        match = NAME.fullmatch(name)
        if match:
            found.append((int(match[1]), os.path.join(folder, name)))
    return sorted(found)


def _load(path: str, map_location: Any) -> dict[str, Any]:
    """The newest intact checkpoint; a damaged one is passed over with a warning."""
    if not os.path.isdir(path):
        return _load_one(path, map_location)
    known = _checkpoints(path)
    if not known:
        raise FileNotFoundError(f"restore: no checkpoint in {path!r}")
    problems = []
    for _, each in reversed(known):
        try:
            content = _load_one(each, map_location)
        except (LoadError, OSError) as error:
            problems.append(f"{each}: {error}")
            continue
        for problem in problems:
            notices.warn(
                f"restore: passed over a damaged checkpoint, using {os.path.basename(each)}. "
                f"{problem}"
            )
        return content
    raise CorruptFileError("restore: no checkpoint is intact. " + "; ".join(problems))


def _load_one(path: str, map_location: Any) -> dict[str, Any]:
    content = files.load(path, map_location=map_location)
    _check_state(content)
    found: dict[str, Any] = content
    return found


def _check_state(state: Any) -> dict[str, Any]:
    """The states of the parts in a run state; anything else is refused."""
    if not isinstance(state, dict) or state.get("lucerne_run_state") != FORMAT:
        raise CorruptFileError("this is no run state: it was not saved by RunState.save")
    parts = state.get("parts")
    if not isinstance(parts, dict) or not {"step", "random"} <= set(state):
        raise CorruptFileError("the run state is incomplete")
    return parts


def _forget(path: str, ops: atomic.FileOps) -> None:
    try:
        ops.remove(path)
    except OSError as error:
        notices.warn(f"save: an old checkpoint could not be removed: {error}")


# ---- parts ------------------------------------------------------------------------------------


def _saver(name: str, part: Any) -> Any:
    """The function that gives a part's state."""
    if hasattr(part, "state_dict") and hasattr(part, "load_state_dict"):
        return part.state_dict
    if isinstance(part, lu.Generator):
        return part.get_state  # type: ignore[attr-defined]
    if isinstance(part, random.Random):
        return part.getstate
    if isinstance(part, np.random.Generator):
        return lambda: part.bit_generator.state
    if isinstance(part, np.random.RandomState):
        return part.get_state
    raise SaveError(
        f"RunState: part {name!r} is a {type(part).__name__}, which has no state_dict and "
        "load_state_dict. Pass plain values to save(path, ...) instead"
    )


def _loader(part: Any) -> Any:
    """The function that puts a part into a state."""
    if hasattr(part, "load_state_dict"):
        return part.load_state_dict
    if isinstance(part, random.Random):
        return part.setstate
    if isinstance(part, np.random.Generator):
        return lambda state: setattr(part.bit_generator, "state", state)
    return part.set_state


def _own_random(state: dict[str, Any]) -> dict[str, Any]:
    """The states of this rank's generators. A rank that was not there gets new ones, but for those
    generators with which all ranks drew alike."""
    every: list[dict[str, Any]] = state.get("ranks") or [state["random"]]
    rank = (LateBindings.process_place() or (0, 1))[0]
    if rank < len(every):
        return every[rank]
    texts = {name: [_state_bytes(each[name]) for each in every] for name in every[0]}
    whole = b"".join(text for row in texts.values() for text in row)
    seed = hashlib.blake2b(whole + rank.to_bytes(8, "little"), digest_size=8).digest()
    number = int.from_bytes(seed, "little")
    drawn = {
        "lucerne": lu.Generator().manual_seed(number >> 1).get_state(),  # type: ignore[attr-defined]
        "python": random.Random(number).getstate(),
        "numpy": np.random.RandomState(number & 0xFFFFFFFF).get_state(),
    }
    return {
        name: every[0][name] if len(set(texts[name])) == 1 else made for name, made in drawn.items()
    }


def _state_bytes(state: Any) -> bytes:
    """What tells the states of a generator apart."""
    if isinstance(state, tuple | list):
        return b",".join(map(_state_bytes, state))
    return bytes(state.numpy()) if isinstance(state, lu.Tensor) else _plain_bytes(state)


def _plain_bytes(value: Any) -> bytes:
    return value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode()


def _random_states() -> dict[str, Any]:
    return {
        "lucerne": lu.get_rng_state(),
        "python": random.getstate(),
        "numpy": np.random.get_state(),
    }


def _set_random_states(states: dict[str, Any]) -> None:
    lu.set_rng_state(states["lucerne"])
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])
