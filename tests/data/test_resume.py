"""A loader goes on where its state says; see `tests.data.resume`."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

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


def test_another_number_of_replicas_is_refused_within_an_epoch() -> None:
    def make(replicas: int) -> Any:
        sampler = DistributedSampler(range(40), replicas, 0, shuffle=False)
        return DataLoader(range(40), 2, sampler=sampler)

    loader = make(2)
    iterator = iter(loader)
    next(iterator)
    state = json.loads(json.dumps(loader.state_dict()))
    make(2).load_state_dict(state)
    for other in (make(4), DataLoader(range(40), 2)):
        with pytest.raises(ValueError, match=r"epoch that 2 processes share.*num_replicas=2"):
            other.load_state_dict(state)
    list(iterator)
    again = make(4)
    again.load_state_dict(loader.state_dict())
    assert len(list(again)) == 5
