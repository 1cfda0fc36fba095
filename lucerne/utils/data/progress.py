"""Where a loader is: what a checkpoint must hold to go on at the next batch.

The state speaks of what the program *got*; batches that were loaded ahead are loaded again. It
says nothing about processes, so it can be continued with any number of workers.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from typing import Any

from lucerne.utils.data.sampler import (
    BatchSampler,
    RandomSampler,
    SequentialSampler,
    fresh_seed,
)
from lucerne.utils.data.seeds import (
    GlobalState,
    Occurrences,
    load_generator,
    mix,
    no_trace,
    save_generator,
    sow,
)

VERSION = 1


@dataclasses.dataclass
class ShardPlace:
    """Where one part of a stream is."""

    batches: int = 0
    samples: int = 0
    ended: bool = False
    state: Any = None


@dataclasses.dataclass
class Progress:
    """Everything about an epoch that a new process needs to continue it."""

    base_seed: int
    epoch: int = 0
    """Counts the epochs with this `base_seed`."""
    per_sample: bool = False
    batches: int = 0
    """How many batches were delivered, without a gap;"""
    ahead: list[int] = dataclasses.field(default_factory=list)
    """and which ones beyond (only when they may come out of order)."""
    finished: bool = False
    root: int | None = None
    """The seed of all epochs (of a reproducible loader)."""
    drew_base: bool = True
    globals: GlobalState | str | None = None
    """The global generators before the epoch began, if its order may depend on them."""
    generators: list[str] = dataclasses.field(default_factory=list)
    sampler_state: Any = None
    sampler_epoch: int | None = None
    shards: list[ShardPlace] | None = None
    """The parts of a stream,"""
    total: int = 0
    """how many logical workers they belong to (0: the main process),"""
    turn: int = 0
    """and whose turn is next."""
    replicas: int | None = None
    """Among how many processes the sampler shares the keys out,"""
    batch: int | None = None
    """how many keys a batch has (None: a sampler of the program's own decides),"""
    taken: int = 0
    """and how many keys of the epoch were seen before it was shared out like that."""

    def state_dict(self) -> dict[str, Any]:
        state = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        if isinstance(self.globals, GlobalState):
            state["globals"] = self.globals.text()
        state["ahead"] = list(self.ahead)
        if self.shards is not None:
            state["shards"] = [dataclasses.asdict(place) for place in self.shards]
        return {"version": VERSION, **state}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Progress:
        known = {f.name for f in dataclasses.fields(cls)}
        found = {name: value for name, value in state.items() if name in known}
        if found.get("shards") is not None:
            found["shards"] = [ShardPlace(**place) for place in found["shards"]]
        found["ahead"] = list(found.get("ahead", []))
        return cls(**found)

    def has(self, number: int) -> bool:
        """Whether the program got batch `number`."""
        return number < self.batches or number in self.ahead

    def delivered(self, number: int) -> None:
        """The program got batch `number`."""
        if number != self.batches:
            self.ahead.append(number)
            return
        self.batches += 1
        while self.batches in self.ahead:
            self.ahead.remove(self.batches)
            self.batches += 1


def replicas_of(loader: Any) -> int | None:
    """Among how many processes the loader's sampler shares the keys out, if it does."""
    inner = getattr(loader.batch_sampler, "sampler", None)
    for sampler in (loader.sampler, inner, loader.batch_sampler):
        found = getattr(sampler, "num_replicas", None)
        if isinstance(found, int):
            return found
    return None


def batch_of(loader: Any) -> int | None:
    """How many keys a batch has, if that is one number."""
    if loader.batch_sampler is None:
        return 1
    return loader.batch_sampler.batch_size if type(loader.batch_sampler) is BatchSampler else None


def beginning_sampler(loader: Any) -> Any:
    """The sampler that can begin within an epoch, if there is one."""
    inner = getattr(loader.batch_sampler, "sampler", None)
    for sampler in (loader.sampler, inner, loader.batch_sampler):
        if hasattr(sampler, "begin_at") and isinstance(getattr(sampler, "num_replicas", None), int):
            return sampler
    return None


def shared_anew(state: dict[str, Any], loader: Any) -> dict[str, Any]:
    """A state for this loader's number of processes and batch size.

    Processes train in step, so one's count of batches says which keys all have seen together: the
    first ones of the epoch's order. The others are shared out again. Between epochs both are free.
    """
    then, now = state.get("replicas"), replicas_of(loader)
    old, new = state.get("batch"), batch_of(loader)
    if state.get("finished") or "replicas" not in state or (then == now and old in (None, new)):
        return state
    able = None not in (then, now, old, new) and beginning_sampler(loader) is not None
    able = able and stateful_sampler(loader) is None  # (it knows its place in its own way)
    if able and state.get("ahead"):
        raise ValueError(
            "DataLoader.load_state_dict: batches came out of order (in_order=False), so what "
            f"{then} processes have seen is not known. Resume with num_replicas={then} and "
            f"batch_size={old}, or save the state at the end of an epoch"
        )
    if able:
        taken = state.get("taken", 0) + state["batches"] * old * then
        return {**state, "taken": taken, "batches": 0, "batch": new, "replicas": now}
    if then == now:
        return state
    raise ValueError(
        f"DataLoader.load_state_dict: the state was taken in the middle of an epoch that "
        f"{then or 1} processes share, this loader's sampler shares it among {now or 1}: some "
        f"samples would be seen twice and others never. Resume with num_replicas={then or 1}, "
        "use a DistributedSampler both times, or save the state at the end of an epoch"
    )


def check_state(state: Any, streaming: bool) -> None:
    """Refuse what is no state of such a loader, in words."""
    if not isinstance(state, dict) or "base_seed" not in state or "batches" not in state:
        raise ValueError(
            "DataLoader.load_state_dict: expected what DataLoader.state_dict() returned, got "
            f"{type(state).__name__}" + (f" with keys {list(state)[:8]}" if state else "")
        )
    if state.get("version", 0) > VERSION:
        raise ValueError(
            f"DataLoader.load_state_dict: the state has version {state['version']}, this Lucerne "
            f"knows {VERSION}"
        )
    if (state.get("shards") is not None) != streaming:
        kinds = ("a map-style dataset", "an IterableDataset")
        raise ValueError(
            f"DataLoader.load_state_dict: the state is of {kinds[not streaming]}, this loader "
            f"reads {kinds[streaming]}"
        )


# ---- keys -------------------------------------------------------------------------------------


def generators_of(loader: Any) -> list[Any]:
    """The generators that decide the order, each once."""
    samplers = [loader.sampler, loader.batch_sampler]
    samplers.append(getattr(loader.batch_sampler, "sampler", None))
    found: dict[int, Any] = {}
    for thing in (loader, *samplers):
        generator = getattr(thing, "generator", None)
        if hasattr(generator, "state_bytes"):
            found[id(generator)] = generator
    return list(found.values())


def stateful_sampler(loader: Any) -> Any:
    """The sampler that keeps its own state, if one does."""
    inner = getattr(loader.batch_sampler, "sampler", None)
    for sampler in (loader.batch_sampler, inner, loader.sampler):
        if hasattr(sampler, "state_dict") and hasattr(sampler, "load_state_dict"):
            return sampler
    return None


def epoch_sampler(loader: Any) -> Any:
    """The sampler that is told the epoch, if there is one."""
    inner = getattr(loader.batch_sampler, "sampler", None)
    for sampler in (loader.sampler, inner, loader.batch_sampler):
        if hasattr(sampler, "set_epoch") and isinstance(getattr(sampler, "epoch", None), int):
            return sampler
    return None


def _never_repeats(loader: Any) -> bool:
    sampler = loader.batch_sampler if loader.batch_sampler is not None else loader.sampler
    if type(sampler) is BatchSampler:
        sampler = sampler.sampler
    if type(sampler) is RandomSampler:
        return not sampler.replacement and sampler.num_samples <= len(sampler.data_source)
    return type(sampler) is SequentialSampler


class Keys:
    """The batches of keys of one epoch: (number, keys, occurrences, sampler's state)."""

    def __init__(self, loader: Any, progress: Progress) -> None:
        self.batched = loader._auto_collation
        self.occurrences = Occurrences(not progress.per_sample or _never_repeats(loader))
        self.stateful = stateful_sampler(loader)
        self.number = 0
        self.first: list[Any] = []
        self.keys: Iterator[Any] = iter(())

    def __iter__(self) -> Keys:
        return self

    def __next__(self) -> tuple[int, Any, list[int] | None, Any]:
        keys = self.first.pop() if self.first else next(self.keys)
        number, self.number = self.number, self.number + 1
        state = None if self.stateful is None else self._sampler_state()
        return number, keys, self.occurrences.of(keys, self.batched), state

    def _sampler_state(self) -> dict[str, Any]:
        """The sampler's own state, and whether this batch is its last: many samplers start over
        when they end, and their state does not tell the end from the beginning."""
        state = copy.deepcopy(self.stateful.state_dict())
        self.prime()
        return {"sampler": state, "last": not self.first}

    def prime(self) -> None:
        """Draw the first batch now: samplers draw their seed with it."""
        self.first = [keys] if (keys := next(self.keys, _END)) is not _END else []


_END = object()


def begin(loader: Any, base_seed: int | None, epoch: int, root: int | None) -> Progress:
    """A new epoch: draws its seed (unless there is one) as PyTorch does."""
    progress = Progress(0, epoch, root=root)
    progress.generators = [save_generator(g) for g in generators_of(loader)]
    if root is None:
        progress.globals = GlobalState()
        progress.drew_base = base_seed is None
        progress.base_seed = fresh_seed(loader.generator) if base_seed is None else base_seed
    else:
        progress.base_seed = mix(root) >> 1
    sampler = epoch_sampler(loader)
    progress.sampler_epoch = None if sampler is None else sampler.epoch
    progress.replicas, progress.batch = replicas_of(loader), batch_of(loader)
    return progress


def keys_of(loader: Any, progress: Progress, resumed: bool) -> Keys:
    """The keys that are still to come in an epoch."""
    made = Keys(loader, progress)
    if resumed:
        sampler = epoch_sampler(loader)
        if sampler is not None and progress.sampler_epoch is not None:
            sampler.set_epoch(progress.sampler_epoch)
        if made.stateful is not None:
            saved = progress.sampler_state
            if saved is not None:
                made.stateful.load_state_dict(saved["sampler"])
            made.number = progress.batches
            if saved is None or not saved["last"]:
                made.keys = iter(loader._index_sampler)
            return made
    if not resumed and progress.root is None:
        made.keys = iter(loader._index_sampler)
        return made
    with no_trace():
        if resumed:
            for generator, saved in zip(generators_of(loader), progress.generators, strict=False):
                load_generator(generator, saved)
        if progress.root is not None:
            sow(mix(progress.root + mix(progress.epoch + 1)))
        elif progress.globals is not None:
            if isinstance(progress.globals, str):
                progress.globals = GlobalState.from_text(progress.globals)
            progress.globals.restore()
            if progress.drew_base:
                fresh_seed(loader.generator)
        beginning = beginning_sampler(loader)
        if beginning is not None and resumed:
            beginning.begin_at(progress.taken)
        made.keys = iter(loader._index_sampler)
        made.prime()
        for _ in range(progress.batches):
            next(made, None)
    return made
