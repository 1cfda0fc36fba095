"""Compiled functions with a schema are ops: eager, gradients, compiled, exported."""

import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lucerne as torch
from lucerne._src.io.errors import UnsupportedFileError
from lucerne._src.ir import op as op_
from lucerne._src.tensor.storage import FAST
from lucerne.export.errors import ExportError
from tests.cpp.sources import SCHEMAS, extension, needs_compiler

pytestmark = needs_compiler


@given(st.lists(st.integers(0, 4), max_size=3), st.sampled_from(["float32", "float64"]),
       st.floats(-4, 4, width=32), st.booleans())  # fmt: skip
def test_it_computes_what_it_says(shape: list[int], name: str, k: float, turned: bool) -> None:
    dtype = getattr(torch, name)
    x, y = torch.randn(shape, dtype=dtype), torch.randn(shape, dtype=dtype)
    if turned:  # strides that the function could not read
        x = x.mT.contiguous().mT if x.ndim > 1 else torch.randn([*shape, 2], dtype=dtype)[..., 0]
    for _ in range(2):  # as a call of a new kind, and as one of a known kind
        assert torch.allclose(extension().scale_add(x, y, k), x + k * y)


# ways to call it, all with k = 2
SPELLINGS = [
    lambda e, x, y: e.scale_add(x, y),
    lambda e, x, y: e.scale_add(x, y, 2),
    lambda e, x, y: e.scale_add(x, y, k=2.0),
    lambda e, x, y: e.scale_add(x, k=torch.tensor(2.0), y=y),
    lambda e, x, y: e.scale_add(y=y, x=x),
    lambda e, x, y: torch.ops.lucerne_tests.scale_add(x, y),
    lambda e, x, y: torch.ops.lucerne_tests.scale_add.default(x, y, 2.0),
    lambda e, x, y: torch.vmap(e.scale_add)(x.expand(3, 2), y.expand(3, 2))[0],
    lambda e, x, y: e.scale_add(torch.nn.Parameter(x), y).detach(),
]


@pytest.mark.parametrize("call", SPELLINGS)
def test_all_spellings_are_one_call(call: Any) -> None:
    x, y = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    for _ in range(2):
        assert call(extension(), x, y).tolist() == [7.0, 10.0]


def test_several_results_with_computed_sizes() -> None:
    x = torch.arange(10.0).reshape(2, 5)
    for _ in range(2):
        sums, count = extension().windows(x, 3)
        assert torch.equal(sums, x.unfold(1, 3, 1).sum(2))
        assert count.item() == 2
    with pytest.raises(RuntimeError, match="negative size"):
        extension().windows(x, 7)


# arguments after the tensor, what is added to it
MIXED = [
    ((1, False), 1.0),
    ((2, True, 0.5), 2.0),
    ((-3, False, 1.0, "minus"), 3.0),
    ((2**40, False, 2.0**-40), 1.0),
]


@pytest.mark.parametrize(("args", "more"), MIXED)
def test_numbers_and_text_arrive(args: tuple[Any, ...], more: float) -> None:
    x = torch.arange(4.0)
    for _ in range(3):
        assert extension().mixed(x, *args).tolist() == (x + more).tolist()


def test_a_failure_is_an_error_each_time() -> None:
    for n in (0, 1, 0):
        if n:
            assert extension().mixed(torch.ones(2), n, True).tolist() == [3.0, 3.0]
        else:
            with pytest.raises(ValueError, match="n is 0"):
                extension().mixed(torch.ones(2), n, True)
    with pytest.raises(TypeError, match="Expected `int`"):
        extension().mixed(torch.ones(2), 2**70, True)


def test_what_is_borrowed_is_not_given_away() -> None:
    x = torch.ones(3)
    x.sum()
    for _ in range(3):
        extension().scale_add(x, x)
        if FAST is not None and x._storage.buffer.exported:
            x._storage.buffer.exported = 0  # the first call of a kind went the long way
    assert FAST is None or not x._storage.buffer.exported
    for _ in range(3):
        assert extension().through(x).tolist() == [2.0, 2.0, 2.0]


def test_a_write_is_a_write() -> None:
    x = torch.ones(3)
    y = x.view(3)
    version = x._version
    extension().increase(x, 2.0)
    assert y.tolist() == [3.0, 3.0, 3.0]
    assert x._version > version
    compiled = torch.compile(lambda t: (extension().increase(t, 1.0), t * 2)[1], fullgraph=True)
    assert compiled(x).tolist() == [8.0, 8.0, 8.0]
    assert x.tolist() == [4.0, 4.0, 4.0]
    with pytest.raises(RuntimeError, match="has to be contiguous"):
        extension().increase(torch.ones(2, 2).t(), 1.0)


def test_gradients() -> None:
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    y = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    op = extension().scale_add
    assert torch.autograd.gradcheck(lambda a, b: op(a, b.t(), 3.0), (x, y))
    found = torch.library.opcheck(op, (torch.ones(2, requires_grad=True), torch.ones(2), 1.5))
    assert set(found.values()) == {"SUCCESS"}


def test_it_is_one_step_of_a_compiled_program() -> None:
    op = extension().scale_add
    step = torch.compile(lambda a, b: op(a * 2, b.relu(), 3.0).sum(), fullgraph=True, dynamic=True)
    for n in (3, 5, 8):
        a, b = torch.randn(n, requires_grad=True), torch.randn(n, requires_grad=True)
        loss = step(a, b)
        loss.backward()
        assert torch.allclose(loss, (a * 2 + 3 * b.relu()).sum())
        assert torch.equal(a.grad, torch.full((n,), 2.0))
        assert torch.equal(b.grad, 3.0 * (b > 0))
    assert "scale_add" in str(step.entries[0].stages.program)


class _Model(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.ops.lucerne_tests.scale_add(x, x.relu(), 0.5) * 2


def test_it_is_exported_and_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    op = extension().scale_add
    x = torch.randn(4)
    program = torch.export.export(_Model(), (x,))
    torch.export.save(program, tmp_path / "m.pt2")
    loaded = torch.export.load(tmp_path / "m.pt2")
    assert torch.equal(loaded.module()(x), _Model()(x))
    monkeypatch.delitem(op_._CUSTOM, op.entry.op.qualified)
    with pytest.raises(UnsupportedFileError, match=r"torch\.ops\.lucerne_tests\.scale_add"):
        torch.export.load(tmp_path / "m.pt2")


def test_the_graph_names_it_and_programs_without_python_refuse_it(tmp_path: Path) -> None:
    extension()
    program = torch.export.export(_Model(), (torch.randn(4),))
    assert "torch.ops.lucerne_tests.scale_add(" in str(program)
    says = r"torch\.ops\.lucerne_tests\.scale_add .*test_ops\.py:.* called through Python"
    with pytest.raises(ExportError, match=says):
        torch.export.build(program, tmp_path)


def test_the_same_library_is_the_same_op() -> None:
    assert extension().scale_add is extension().scale_add


def test_other_threads_and_modes() -> None:
    op, found = extension().scale_add, []
    x = torch.ones(3)
    op(x, x)
    thread = threading.Thread(target=lambda: found.append(op(x, x).tolist()))
    thread.start()
    thread.join()
    with torch.inference_mode():
        found.append(op(x, x).tolist())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found.append(op(x, x).tolist())
    assert found == [[3.0, 3.0, 3.0]] * 3


def test_a_kernel_in_its_place_is_called() -> None:
    op, x = extension().scale_add, torch.ones(3)
    assert op(x, x).tolist() == [3.0] * 3
    own = op.kernels["cpu"]
    op.register_kernel("cpu", lambda x, y, k=2.0: x - y)
    try:
        assert op(x, x).tolist() == [0.0] * 3
    finally:
        op.register_kernel("cpu", own)
    with op.set_kernel_enabled("cpu", False), pytest.raises(NotImplementedError):
        op(x, x)


# arguments, what the error says
WRONG = [
    ((torch.ones(3), torch.ones(4)), "with ... = "),
    ((torch.ones(3), torch.ones(3).double()), "has to be torch.float32"),
    ((torch.ones(3, dtype=torch.int32),) * 2, "float32 or torch.float64"),
    ((torch.ones(3),), "missing value for argument 'y'"),
    ((torch.ones(3), torch.ones(3), "k"), "Expected a value of type 'float'"),
    ((torch.ones(3), torch.ones(3), 1.0, 2.0), "at most 3"),
]


@pytest.mark.parametrize(("args", "says"), WRONG)
def test_arguments_are_checked_before_machine_code_sees_them(args: Any, says: str) -> None:
    with pytest.raises(Exception, match=says):
        extension().scale_add(*args)


def test_every_schema_of_the_tests_is_an_op() -> None:
    assert set(SCHEMAS) <= set(dir(torch.ops.lucerne_tests))
