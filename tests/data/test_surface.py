"""Datasets, collating and arguments: what PyTorch gives or refuses, with its words."""

from __future__ import annotations

import collections
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lucerne
import lucerne.multiprocessing
import lucerne.utils.data as ours

torch = pytest.importorskip("torch")
theirs = pytest.importorskip("torch.utils.data")
pytestmark = pytest.mark.torch

Maker = Callable[[Any, Any], Any]
Point = collections.namedtuple("Point", "x y")
NAMES = Path("/work/shared/conformance/torch_api.json")


class Custom(collections.UserDict[str, Any]):
    """A mapping of the user's own."""


def show(thing: Any) -> Any:
    """Structure, types and values, without the library."""
    if isinstance(thing, torch.Tensor | lucerne.Tensor):
        return "tensor", str(thing.dtype), tuple(thing.shape), thing.tolist()
    if isinstance(thing, collections.abc.Mapping):
        return type(thing).__name__, {key: show(value) for key, value in thing.items()}
    if isinstance(thing, list | tuple):
        return type(thing).__name__, [show(item) for item in thing]
    if isinstance(thing, np.ndarray):
        return "array", str(thing.dtype), thing.tolist()
    return type(thing).__name__, repr(thing)


def outcome(make: Maker, library: Any, data: Any) -> Any:
    try:
        return show(make(library, data))
    except Exception as error:
        return type(error).__name__, str(error)


def agree(make: Maker) -> None:
    expected = outcome(make, torch, theirs)
    assert outcome(make, lucerne, ours) == expected


BATCHES: dict[str, Maker] = {
    "ints": lambda t, d: [1, 2],
    "floats": lambda t, d: [1.0, 2.5],
    "mixed": lambda t, d: [1, 2.5],
    "bools": lambda t, d: [True, False],
    "strings": lambda t, d: ["a", "b"],
    "bytes": lambda t, d: [b"a", b"b"],
    "tensors": lambda t, d: [t.ones(2, 3), t.zeros(2, 3)],
    "scalars": lambda t, d: [t.tensor(1), t.tensor(2)],
    "other sizes": lambda t, d: [t.ones(2), t.ones(3)],
    "int8": lambda t, d: [t.ones(2, dtype=t.int8)] * 2,
    "bfloat16": lambda t, d: [t.ones(2, dtype=t.bfloat16)] * 2,
    "transposed": lambda t, d: [t.arange(6).reshape(2, 3).T] * 2,
    "arrays": lambda t, d: [np.ones(2, np.float32), np.zeros(2, np.float32)],
    "array scalars": lambda t, d: [np.float32(1), np.float32(2)],
    "int64 scalars": lambda t, d: [np.int64(1), np.int64(2)],
    "np bools": lambda t, d: [np.bool_(True)],
    "0-d arrays": lambda t, d: [np.array(3), np.array(4)],
    "texts in arrays": lambda t, d: [np.array(["a"])],
    "objects in arrays": lambda t, d: [np.array([None])],
    "dicts": lambda t, d: [{"a": 1, "b": 2.5}, {"a": 3, "b": 4.0}],
    "missing key": lambda t, d: [{"a": 1}, {"b": 1}],
    "ordered": lambda t, d: [collections.OrderedDict(a=1), collections.OrderedDict(a=2)],
    "default dicts": lambda t, d: [collections.defaultdict(int, a=1)] * 2,
    "custom mapping": lambda t, d: [Custom(a=1), Custom(a=2)],
    "tuples": lambda t, d: [(1, "x"), (2, "y")],
    "lists": lambda t, d: [[1, 2], [3, 4]],
    "ragged": lambda t, d: [[1, 2], [3]],
    "named": lambda t, d: [Point(1, 2), Point(3, 4)],
    "nested": lambda t, d: [{"a": (1, [t.ones(1), "s"])}] * 3,
    "ranges": lambda t, d: [range(2), range(2)],
    "empty tuples": lambda t, d: [(), ()],
    "empty lists": lambda t, d: [[], []],
    "nothing": lambda t, d: [],
    "none": lambda t, d: [None, None],
    "object": lambda t, d: [{1, 2}],
    "complex": lambda t, d: [1 + 2j],
    "a string": lambda t, d: "ab",
    "dates": lambda t, d: [np.datetime64("2020-01-01")],
}


@pytest.mark.parametrize("name", BATCHES)
def test_default_collate(name: str) -> None:
    agree(lambda t, d: d.default_collate(BATCHES[name](t, d)))


@pytest.mark.parametrize("name", BATCHES)
def test_default_convert(name: str) -> None:
    agree(lambda t, d: d.default_convert(BATCHES[name](t, d)))


def test_collate_by_own_table() -> None:
    def joined(t: Any, d: Any) -> Any:
        def join(batch: Any, *, collate_fn_map: Any = None) -> Any:
            return "+".join(batch)

        table = {str: join, **d._utils.collate.default_collate_fn_map}
        batch = [("a", 1), ("b", 2)]
        return d._utils.collate.collate(batch, collate_fn_map=table)

    agree(joined)


LEAVES = st.one_of(
    st.integers(-9, 9), st.floats(-1, 1), st.booleans(), st.text(max_size=2),
    st.just(np.arange(3, dtype=np.int16)),
)  # fmt: skip
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
        st.builds(Point, inner, inner),
    ),
    max_leaves=6,
)


@given(TREES, st.integers(1, 3))
def test_collating_equal_samples(tree: Any, count: int) -> None:
    agree(lambda t, d: d.default_collate([tree] * count))


class Squares:
    def __len__(self) -> int:
        return 5

    def __getitem__(self, i: int) -> int:
        return i * i


def _map(d: Any) -> Any:
    return type("D", (Squares, d.Dataset), {})()


def _stream(d: Any) -> Any:
    return type("I", (d.IterableDataset,), {"__iter__": lambda self: iter(range(3))})()


DATASETS: dict[str, Maker] = {
    "sum": lambda t, d: [(_map(d) + _map(d))[i] for i in (0, 4, 5, 9, -1)],
    "sum of streams": lambda t, d: list(_stream(d) + _stream(d)),
    "tensors": lambda t, d: d.TensorDataset(t.arange(4), t.ones(4, 2))[1],
    "tensors, slice": lambda t, d: d.TensorDataset(t.arange(4))[1:3],
    "tensors, length": lambda t, d: len(d.TensorDataset(t.arange(4))),
    "tensors, sizes": lambda t, d: d.TensorDataset(t.ones(2), t.ones(3)),
    "concat": lambda t, d: [d.ConcatDataset([[1, 2], [3]])[i] for i in range(3)],
    "concat of none": lambda t, d: d.ConcatDataset([]),
    "concat of streams": lambda t, d: d.ConcatDataset([_stream(d)]),
    "concat beyond": lambda t, d: d.ConcatDataset([[1]])[-2],
    "concat sizes": lambda t, d: d.ConcatDataset([[1, 2], [3]]).cumulative_sizes,
    "chain": lambda t, d: list(d.ChainDataset([_stream(d), _stream(d)])),
    "chain of maps": lambda t, d: list(d.ChainDataset([_map(d)])),
    "subset": lambda t, d: [d.Subset(_map(d), [4, 2])[i] for i in (0, 1, -1)],
    "subset, list": lambda t, d: d.Subset(t.arange(9), [4, 2])[[0, 1]],
    "subset, many": lambda t, d: d.Subset(_map(d), [4, 2]).__getitems__([1, 0]),
    "stack": lambda t, d: [d.StackDataset([1, 2], [3, 4])[1], len(d.StackDataset([1, 2]))],
    "stack by name": lambda t, d: d.StackDataset(a=[1, 2], b=[3, 4])[1],
    "stack, many": lambda t, d: d.StackDataset(a=[1, 2], b=[3, 4]).__getitems__([1, 0]),
    "stack, many tuples": lambda t, d: d.StackDataset([1, 2], [3, 4]).__getitems__([1, 0]),
    "stack of none": lambda t, d: d.StackDataset(),
    "stack of both": lambda t, d: d.StackDataset([1], a=[1]),
    "stack, sizes": lambda t, d: d.StackDataset([1], [1, 2]),
    "abstract": lambda t, d: d.Dataset()[0],
    "abstract sampler": lambda t, d: iter(d.Sampler()),
    "split sum": lambda t, d: d.random_split([1, 2, 3], [1, 1]),
    "split fraction": lambda t, d: d.random_split([1, 2, 3], [1.5, -0.5]),
    "sampler, replacement": lambda t, d: d.RandomSampler([1], replacement=1),
    "sampler, none": lambda t, d: d.RandomSampler([]),
    "sampler, part": lambda t, d: d.RandomSampler([1], num_samples=2.5),
    "batch sampler": lambda t, d: d.BatchSampler([1], 0, False),
    "batch sampler, drop": lambda t, d: d.BatchSampler([1], 1, 3),
    "weights": lambda t, d: d.WeightedRandomSampler([[1.0]], 1),
    "weights, none": lambda t, d: d.WeightedRandomSampler([1.0], 0),
    "weights, replacement": lambda t, d: d.WeightedRandomSampler([1.0], 1, 2),
    "rank": lambda t, d: d.DistributedSampler([1], 2, 2),
}  # fmt: skip


@pytest.mark.parametrize("name", DATASETS)
def test_dataset(name: str) -> None:
    agree(DATASETS[name])


ARGUMENTS: list[dict[str, Any]] = [
    {"num_workers": -1}, {"timeout": -1}, {"prefetch_factor": 2}, {"persistent_workers": True},
    {"num_workers": 1, "prefetch_factor": -1}, {"shuffle": True, "sampler": [1]},
    {"batch_sampler": [[1]], "batch_size": 2}, {"batch_sampler": [[1]], "sampler": [1]},
    {"batch_size": None, "drop_last": True}, {"batch_size": 0}, {"batch_size": True},
    {"batch_size": 2.5}, {"multiprocessing_context": "fork"},
    {"num_workers": 1, "multiprocessing_context": "x"},
    {"num_workers": 1, "multiprocessing_context": 3},
]  # fmt: skip


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=str)
def test_refused_arguments(arguments: dict[str, Any]) -> None:
    agree(lambda t, d: d.DataLoader([1, 2, 3], **arguments))


@pytest.mark.parametrize("arguments", [{"shuffle": True}, {"sampler": [1]}, {"batch_sampler": [1]}])
def test_refused_arguments_for_streams(arguments: dict[str, Any]) -> None:
    agree(lambda t, d: d.DataLoader(_stream(d), **arguments))


@pytest.mark.parametrize("name", ["batch_size", "sampler", "dataset", "drop_last"])
def test_attributes_are_fixed(name: str) -> None:
    agree(lambda t, d: setattr(d.DataLoader([1]), name, 3))


def test_attributes_and_signature() -> None:
    ours_, theirs_ = (vars(d.DataLoader([1, 2], 2)) for d in (ours, theirs))
    assert set(theirs_) <= set(ours_)
    parameters = inspect.signature(ours.DataLoader).parameters
    wanted = inspect.signature(theirs.DataLoader).parameters
    assert [*parameters][: len(wanted)] == [*wanted]
    assert all(parameters[name].default == p.default for name, p in wanted.items())


def test_stream_longer_than_it_said() -> None:
    class Liar(ours.IterableDataset[int]):
        def __len__(self) -> int:
            return 1

        def __iter__(self) -> Any:
            return iter(range(2))

    loader = ours.DataLoader(Liar())
    assert len(loader) == 1
    with pytest.warns(UserWarning, match="was reported to be 1 .* but 2 samples have been fetched"):
        list(loader)


@pytest.mark.skipif(not NAMES.exists(), reason="the list of PyTorch's names is not on this machine")
def test_all_names_are_there() -> None:
    names = json.loads(NAMES.read_text())
    assert [n for n in names["torch.utils.data"] if not hasattr(ours, n)] == []
    multi = lucerne.multiprocessing
    assert [n for n in names["torch.multiprocessing"] if not hasattr(multi, n)] == []


@pytest.mark.filterwarnings("ignore:Local function is not supported:UserWarning")
@pytest.mark.filterwarnings("ignore:Lambda function is not supported:UserWarning")
def test_pipes() -> None:
    def chain(t: Any, d: Any) -> Any:
        wrap = d.datapipes.iter.IterableWrapper
        pipe = wrap(range(7)).map(lambda x: x * 3).filter(lambda x: x % 2 == 0)
        keyed = d.datapipes.map.SequenceWrapper([1, 2, 3]).map(str).batch(2)
        zipped = list(wrap([1, 2]).zip(wrap("ab")))
        return [list(pipe.batch(3)), list(pipe.batch(2).unbatch()), list(keyed), zipped, repr(pipe)]

    expected, got = (chain(t, d) for t, d in ((torch, theirs), (lucerne, ours)))
    assert got[:-1] == expected[:-1]

    @ours.non_deterministic
    class Chance(ours.IterDataPipe[int]):
        def __init__(self, source: Any) -> None:
            self.source = source

    with ours.guaranteed_datapipes_determinism(), pytest.raises(TypeError, match="non-determinist"):
        Chance([1])
    assert Chance([1]).source == [1]
    with pytest.raises(AttributeError, match="no attribute 'nothing"):
        Chance([1]).nothing  # noqa: B018
