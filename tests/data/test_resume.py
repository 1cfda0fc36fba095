"""A loader goes on where its state says; see `tests.data.resume`."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lucerne
from lucerne.utils.data import DataLoader, DistributedSampler
from tests.data import resume
from tests.data.samples import Augmented, StatefulStream, Stream, plain


@pytest.mark.parametrize("case", resume.cases(2 * len(resume.KINDS), 2, seed=2), ids=str)
def test_rest_of_epoch_is_the_same(case: Any) -> None:
    resume.one_case(*case)


@pytest.mark.nightly
@pytest.mark.parametrize("case", resume.cases(200, 8), ids=str)
def test_rest_of_epoch_is_the_same_at_length(case: Any) -> None:
    """200 states, 0 to 8 workers: `python -m tests.data.resume --cases 200`."""
    resume.one_case(*case)


def test_later_epochs_of_a_reproducible_loader_are_the_same() -> None:
    def make(workers: int) -> Any:
        return DataLoader(Augmented(7), 2, shuffle=True, num_workers=workers, reproducible=True)

    lucerne.manual_seed(8)
    loader = make(0)
    whole = [[plain(batch) for batch in loader] for _ in range(4)]
    lucerne.manual_seed(8)
    loader = make(1)
    list(loader)
    head = [plain(batch) for batch in itertools.islice(iter(loader), 2)]
    state = json.loads(json.dumps(loader.state_dict()))
    lucerne.manual_seed(77)
    loader = make(2)
    loader.load_state_dict(state)
    rest = [[plain(batch) for batch in loader] for _ in range(3)]
    assert [head + rest[0], *rest[1:]] == whole[1:]


def test_an_epoch_left_early_is_not_repeated() -> None:
    loader = DataLoader(range(100), 50, shuffle=True, reproducible=True)
    first = plain(next(iter(loader)))
    assert plain(next(iter(loader))) != first


def test_state_between_epochs_begins_a_new_one() -> None:
    loader = DataLoader(range(5), 2)
    other = DataLoader(range(5), 2)
    other.load_state_dict(loader.state_dict())
    assert len(list(other)) == 3
    list(loader)
    other.load_state_dict(loader.state_dict())
    assert len(list(other)) == 3


def test_state_after_the_last_batch_ends_the_epoch() -> None:
    loader = DataLoader(range(4), 2)
    iterator = iter(loader)
    next(iterator), next(iterator)
    other = DataLoader(range(4), 2)
    other.load_state_dict(iterator.state_dict())
    assert [len(list(other)), len(list(other))] == [0, 2]


def test_state_of_a_loaded_loader_is_what_was_loaded() -> None:
    loader = DataLoader(range(6), 2)
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    other = DataLoader(range(6), 2)
    other.load_state_dict(state)
    assert other.state_dict() == state


@pytest.mark.parametrize(("before", "after"), [(0, 2), (2, 0), (3, 2)])
def test_stream_with_state_is_not_read_again(before: int, after: int) -> None:
    loader = DataLoader(StatefulStream(20), 2, num_workers=before)
    iterator = iter(loader)
    head = [plain(next(iterator)) for _ in range(5)]
    state = loader.state_dict()
    del iterator
    loader = DataLoader(StatefulStream(20), 2, num_workers=after)
    loader.load_state_dict(state)
    tail = [plain(batch) for batch in loader]
    assert sorted(n for batch in head + tail for n in batch[0]) == list(range(20))
    assert all(started > 0 for batch in tail for started in batch[2])


def test_what_is_no_state_is_refused() -> None:
    with pytest.raises(ValueError, match=r"expected what DataLoader.state_dict\(\) returned"):
        DataLoader(range(3)).load_state_dict({"epoch": 1})
    state = DataLoader(range(3)).state_dict()
    with pytest.raises(ValueError, match="of a map-style dataset, this loader reads an Iterable"):
        DataLoader(Stream(3)).load_state_dict(state)
    with pytest.raises(ValueError, match="version 99"):
        DataLoader(range(3)).load_state_dict({**state, "version": 99})


def _replica(length: int, replicas: int, rank: int, batch: int, drop: bool = False) -> Any:
    sampler = DistributedSampler(range(length), replicas, rank, seed=5, drop_last=drop)
    return DataLoader(range(length), batch, sampler=sampler)


@settings(max_examples=40)
@given(
    st.integers(1, 60),
    st.lists(st.tuples(st.integers(1, 6), st.integers(1, 5), st.integers(0, 4)), max_size=3),
    st.booleans(),
)
def test_an_epoch_is_shared_out_anew(
    length: int, stages: list[tuple[int, int, int]], drop: bool
) -> None:
    """However often the number of processes and their batches change within it, nobody's sample is
    lost or seen twice, but for those that fill up or are dropped at its end."""
    state: Any = None
    seen: list[int] = []
    for replicas, batch, steps in [*stages, (3, 2, 1000)]:
        loaders = [_replica(length, replicas, rank, batch, drop) for rank in range(replicas)]
        for loader in loaders:
            if state is not None:
                loader.load_state_dict(json.loads(json.dumps(state)))
        for iterator in (iters := [iter(loader) for loader in loaders]):
            found = [next(iterator, None) for _ in range(min(steps, length + 1))]
            seen += [key for keys in found if keys is not None for key in keys.tolist()]
        state = iters[0].state_dict()
        if state["finished"]:
            break
    twice = len(seen) - len(set(seen))
    assert set(seen) <= set(range(length))
    assert twice == 0 if drop else twice < 6
    assert len(set(seen)) > length - 6 if drop else set(seen) == set(range(length))


def test_another_number_of_replicas_is_refused_where_nobody_knows_what_they_saw() -> None:
    loader = _replica(40, 2, 0, 2)
    iterator = iter(loader)
    next(iterator)
    state = json.loads(json.dumps(loader.state_dict()))
    with pytest.raises(ValueError, match=r"epoch that 2 processes share.*num_replicas=2"):
        DataLoader(range(40), 2).load_state_dict(state)
    with pytest.raises(ValueError, match=r"out of order.*num_replicas=2 and batch_size=2"):
        _replica(40, 4, 0, 2).load_state_dict({**state, "ahead": [3]})
    list(iterator)
    again = _replica(40, 4, 0, 2)
    again.load_state_dict(loader.state_dict())
    assert len(list(again)) == 5
