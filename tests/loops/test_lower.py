"""Programs of random graphs: they give what the graph gives, inside their memory, whatever groups
the backend takes."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lucerne import backends
from lucerne._src.backends.contract.step_runner import StepRunner
from lucerne._src.backends.contract.tensor_view import Bytes, Spot
from lucerne._src.ir.graph import Graph
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.program import ARENA, ARGUMENT, RESULT, Place, Program, places
from lucerne._src.loops.group import Fusion
from lucerne._src.loops.lower import lower
from tests.transforms.programs import Maker
from tests.transforms.tracing import arrays, assert_same_bits, meta, results, traced

REFERENCE: Any = backends.get("reference")


def never(graphs: list[Graph]) -> list[bool]:
    return [False] * len(graphs)


def sometimes(seed: int) -> Any:
    """A backend that takes groups as it likes."""
    rng = random.Random(seed)
    return lambda graphs: [rng.random() < 0.6 for _ in graphs]


def spot(m: TensorMeta, array: Any = None) -> Spot:
    """A tensor of its own, filled with something that nobody should read."""
    nbytes = max(m.span * m.dtype.itemsize, 1)
    buffer = REFERENCE.allocate(nbytes)
    buffer[:] = 0xAB
    made = Spot(m, Bytes(buffer, nbytes, REFERENCE.address(buffer)), 0)
    if array is not None:
        view(made)[...] = array
    return made


def view(s: Spot) -> np.ndarray:
    m, storage = s._meta, s._meta.dtype.storage
    if not m.numel:
        return np.empty(tuple(m.shape), storage)
    return np.ndarray(tuple(m.shape), storage, s._storage.buffer, 0, m.byte_strides)


def ran(program: Program, given: list[Any]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Results, and the arguments afterwards."""
    runner = StepRunner(program, REFERENCE)
    runner._arena.buffer[:] = 0xAB
    arguments = [spot(m, x) for m, x in zip(program.arguments, given, strict=True)]
    made = [spot(m) for m in program.results]
    runner(arguments, (), made)
    return [np.array(view(s)) for s in made], [np.array(view(s)) for s in arguments]


def assert_inside(program: Program) -> None:
    """Every place lies in its buffer."""
    room = {ARENA: [program.arena]}
    room[ARGUMENT] = [m.span * m.dtype.itemsize for m in program.arguments]
    room[RESULT] = [m.span * m.dtype.itemsize for m in program.results]
    for step in program.steps:
        for p in [*places(step.inputs), *step.outputs]:
            if p.kind in room and p.meta.numel:
                end = p.offset + p.meta.span * p.meta.dtype.itemsize
                assert p.offset >= 0
                assert end <= room[p.kind][p.index], f"{p} of {step} ends at {end}"
                if p.kind == ARGUMENT and p in step.outputs:
                    assert p.index in program.written


def overlapping(a: Place, b: Place) -> bool:
    if (a.kind, a.index) != (b.kind, b.index) or not a.meta.numel or not b.meta.numel:
        return False
    ends = [p.offset + p.meta.span * p.meta.dtype.itemsize for p in (a, b)]
    return a.offset < ends[1] and b.offset < ends[0]


def assert_steps_keep_their_inputs(program: Program) -> None:
    """A step writes over what it reads only where it reads and writes the same elements."""
    for step in program.steps:
        for k, out in enumerate(step.outputs):
            for other in step.outputs[:k]:
                assert not overlapping(out, other), str(step)
            for read in places(step.inputs):
                if overlapping(out, read):
                    assert (out.offset, out.meta) == (read.offset, read.meta), str(step)


@settings(max_examples=120, deadline=None)
@given(seed=st.integers(0, 2**32), size=st.integers(1, 25), fuse=st.booleans())
def test_a_program_gives_what_its_graph_gives(seed: int, size: int, fuse: bool) -> None:
    graph = Maker(seed).make(size)
    given = arrays(graph, seed % 1000)
    want = results(graph, given)
    program = lower(graph, sometimes(seed) if fuse else never, Fusion() if fuse else None)
    assert_inside(program)
    assert_steps_keep_their_inputs(program)
    made, after = ran(program, given)
    count = len(graph.outputs)
    assert_same_bits(made, want[:count])
    written = {t.index: x for (t, _), x in zip(graph.writes, want[count:], strict=True)}
    expected = [written.get(v.index, x) for v, x in zip(graph.inputs, given, strict=True)]
    assert_same_bits(after, [np.asarray(x) for x in expected])


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), size=st.integers(5, 25))
def test_results_do_not_share_memory(seed: int, size: int) -> None:
    """Each result is a buffer of its own, so each has all of its elements written."""
    program = lower(Maker(seed).make(size), sometimes(seed), Fusion())
    written = {p.index for step in program.steps for p in step.outputs if p.kind == RESULT}
    for k, m in enumerate(program.results):
        assert k in written or not m.numel or _is_uninitialized(program, k)


def _is_uninitialized(program: Program, k: int) -> bool:
    return not any(p.kind == RESULT and p.index == k for s in program.steps for p in s.outputs)


def kinds(program: Program) -> list[str]:
    return [f"{s.outputs[0]} = {s.name}" for s in program.steps]


def test_values_that_die_make_room() -> None:
    def chain(x: Any) -> Any:
        for _ in range(10):
            x = x.cumsum(0)
        return x.sum(0)

    program = lower(traced(chain, meta(64)), never)
    assert program.arena == 2 * 256


def test_a_result_is_made_in_its_place() -> None:
    program = lower(traced(lambda x: x.exp().cumsum(0), meta(64)), never)
    assert [str(s.outputs[0]) for s in program.steps] == ["arena+0", "result0+0"]


def test_an_input_is_updated_in_place() -> None:
    graph = traced(lambda x, g: (x - g * 0.1,), meta(64), meta(64), writes=[(0, 0)])
    program = lower(graph, lambda graphs: [True] * len(graphs), Fusion())
    assert [str(s.outputs[0]) for s in program.steps] == ["argument0+0"]
    assert program.written == {0}
    assert program.arena == 0


def test_an_input_that_is_read_later_is_updated_at_the_end() -> None:
    graph = traced(lambda x: (x * 2, (x * 3).cumsum(0)), meta(64), writes=[(0, 0)])
    program = lower(graph, never)
    assert str(program.steps[-1].outputs[0]) == "argument0+0"
    x = np.arange(64, dtype=np.float32)
    made, after = ran(program, [x])
    assert_same_bits(made, [(x * 3).cumsum(dtype=np.float32)])
    assert_same_bits(after, [x * 2])


def test_inputs_that_change_places() -> None:
    graph = traced(lambda x, y: (y, x), meta(8), meta(8), writes=[(0, 0), (1, 1)])
    x, y = np.arange(8, dtype=np.float32), np.ones(8, np.float32)
    made, after = ran(lower(graph, never), [x, y])
    assert made == []
    assert_same_bits(after, [y, x])


def test_one_value_twice_among_the_results() -> None:
    def twice(x: Any) -> Any:
        y = x.exp()
        return y, y, y[1:]

    x = np.zeros(4, np.float32)
    made, _ = ran(lower(traced(twice, meta(4)), never), [x])
    assert_same_bits(made, [np.ones(4, np.float32), np.ones(4, np.float32), np.ones(3, np.float32)])


def test_an_input_as_a_result_is_a_copy() -> None:
    made, after = ran(lower(traced(lambda x: (x, x.t()), meta(2, 3)), never), [_counted(2, 3)])
    assert_same_bits(made, [_counted(2, 3), _counted(2, 3).T])
    assert_same_bits(after, [_counted(2, 3)])


def _counted(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def test_the_checks_see_what_is_wrong() -> None:
    graph = traced(lambda x: x.exp().cumsum(0), meta(64))
    program = lower(graph, never)
    program.arena = 8
    with pytest.raises(AssertionError, match="ends at"):
        assert_inside(program)
    first = program.steps[0]
    first.outputs = (Place(ARGUMENT, 0, 4, first.outputs[0].meta),)
    with pytest.raises(AssertionError):
        assert_steps_keep_their_inputs(program)


# ---- nodes that their readers repeat ------------------------------------------------------------

PRODUCT = "batch_matmul"
REPEATING = Fusion(frozenset((PRODUCT,)), folds_into_loads=lambda node: node.op.name == "exp")


def always(graphs: list[Graph]) -> list[bool]:
    return [True] * len(graphs)


def names(program: Program) -> list[str]:
    return [step.name for step in program.steps]


def two_products(x: Any, w: Any) -> Any:
    e = w.exp()
    return (x @ e) @ e.t()


def test_heavy_readers_repeat_what_is_free() -> None:
    graph = traced(two_products, meta(4, 6), meta(6, 5))
    program = lower(graph, always, REPEATING)
    assert names(program) == [f"exp+{PRODUCT}", f"exp+t+{PRODUCT}"]
    given = arrays(graph, 3)
    made, _ = ran(program, given)
    assert_same_bits(made, results(graph, given))


def test_a_free_node_stays_if_one_reader_is_not_taken() -> None:
    def takes(graphs: list[Graph]) -> list[bool]:
        return [not any(n.op.name == "t" for n in g.nodes) for g in graphs]

    graph = traced(two_products, meta(4, 6), meta(6, 5))
    program = lower(graph, takes, REPEATING)
    assert names(program) == ["exp", PRODUCT, PRODUCT]
    given = arrays(graph, 3)
    assert_same_bits(ran(program, given)[0], results(graph, given))


@pytest.mark.parametrize("other", [lambda e: e, lambda e: e.cumsum(0), lambda e: e.t()])
def test_a_free_node_stays_if_others_read_it(other: Any) -> None:
    def used_otherwise(x: Any, w: Any) -> Any:
        e = w.exp()
        return x @ e, other(e)

    graph = traced(used_otherwise, meta(4, 6), meta(6, 5))
    program = lower(graph, always, REPEATING)
    assert "exp" in names(program)
    given = arrays(graph, 4)
    assert_same_bits(ran(program, given)[0], results(graph, given))


def test_an_input_that_is_read_anew_is_updated_afterwards() -> None:
    """The products read the input itself now: it must not change before the last of them."""

    def step(x: Any, w: Any) -> Any:
        e = w.exp()
        y = x @ e
        return w * 2.0, y @ e.t()

    graph = traced(step, meta(4, 6), meta(6, 5), writes=[(1, 0)])
    program = lower(graph, always, REPEATING)
    assert "exp" not in names(program)
    given = arrays(graph, 5)
    want = results(graph, given)
    made, after = ran(program, given)
    assert_same_bits(made, want[:1])
    assert_same_bits(after[1:], want[1:])
