"""The state of a run, saved and restored by one call each, so that stopping leaves no trace."""

from __future__ import annotations

import os
import random
import re
from typing import Any

import numpy as np

from lucerne._src.base.process import notices
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
        _set_random_states(state["random"])

    def save(
        self, path: str | os.PathLike[str], *, ops: atomic.FileOps = atomic.OPS, **extra: Any
    ) -> None:
        """Save everything, and `extra` with it. When it returns, the checkpoint is on disk."""
        content = {**self.state_dict(), "extra": extra}
        target = os.fspath(path)
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
