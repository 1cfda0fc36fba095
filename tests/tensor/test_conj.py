"""Conjugates are views: each row runs here and in torch, and what can be seen of it is compared."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lucerne
from lucerne._src.capture.lazy.mode import lazy
from lucerne._src.ir import op as op_

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning"),
]

Row = Callable[[Any, Any, Any], Any]
"""Of the framework, a complex matrix and its conjugate."""


def matrix(t: Any) -> Any:
    return t.tensor([[1 + 2j, 3 - 4j], [5j, 6 - 0.5j]], dtype=t.complex128)


def seen(t: Any, x: Any) -> Any:
    """What a program can see of a result: values as text, so that -0.0 is not 0.0."""
    if isinstance(x, (tuple, list)):
        return [seen(t, part) for part in x]
    if not isinstance(x, t.Tensor):
        return x
    strides = [s for s, n in zip(x.stride(), x.shape, strict=True) if n > 1]
    return repr(x.tolist()), x.is_conj(), x.is_neg(), strides, str(x.dtype)


def outcome(t: Any, row: Row) -> Any:
    """A row's result (or error), and what it has left in the memory."""
    z = matrix(t)
    try:
        found = seen(t, row(t, z, z.conj()))
    except (RuntimeError, BufferError, TypeError) as error:
        found = type(error).__name__, str(error)
    return found, repr(z.tolist())


def same(row: Row) -> None:
    assert outcome(lucerne, row) == outcome(torch, row)


# ---- reading ---------------------------------------------------------------------------------


def saved(t: Any, x: Any) -> Any:
    stream = io.BytesIO()
    t.save(x, stream)
    stream.seek(0)
    return t.load(stream)


def shares(a: Any, b: Any) -> bool:
    return bool(a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr())


READ: dict[str, Row] = {
    "conj": lambda t, z, c: c,
    "conj twice": lambda t, z, c: (c.conj(), shares(c.conj(), z)),
    "conj of reals": lambda t, z, c: (z.real.conj() is not None, z.real.conj().is_conj()),
    "same memory": lambda t, z, c: (c.data_ptr() == z.data_ptr(), shares(c, z), c._is_view()),
    "imag": lambda t, z, c: (c.imag, c.imag.data_ptr() == z.imag.data_ptr()),
    "real": lambda t, z, c: c.real,
    "imag of twice": lambda t, z, c: c.conj().imag,
    "conj of imag": lambda t, z, c: c.imag.conj(),
    "adjoints": lambda t, z, c: (z.mH, z.H, z.adjoint(), t.adjoint(c), z[0, 0].conj()),
    "functions": lambda t, z, c: (t.conj(z), t.is_conj(c), t.is_neg(c.imag), t.resolve_conj(c)),
    "resolve": lambda t, z, c: (c.resolve_conj(), c.imag.resolve_neg(), c.resolve_neg()),
    "resolve nothing": lambda t, z, c: (z.resolve_conj() is z, z.real.resolve_neg().is_neg()),
    "physical": lambda t, z, c: (c.conj_physical(), z.conj_physical(), t.conj_physical(c)),
    "clone": lambda t, z, c: (c.clone(), c.imag.clone(), c.T.clone()),
    "contiguous": lambda t, z, c: (c.contiguous() is c, c.T.contiguous(), c.imag.contiguous()),
    "aliases": lambda t, z, c: (c.detach(), c.data, copy.copy(c), c.positive(), c.to(c.dtype)),
    "deepcopy": lambda t, z, c: (copy.deepcopy(c), shares(copy.deepcopy(c), z)),
    "pickle": lambda t, z, c: pickle.loads(pickle.dumps((c, c.imag, z))),
    "save": lambda t, z, c: (saved(t, [c, z.mH]), saved(t, c.imag)),
    "saved memory": lambda t, z, c: shares(*saved(t, [z, c])),
    "cast": lambda t, z, c: (c.to(t.complex64), c.cfloat(), c.imag.to(t.int64)),
    "copy to": lambda t, z, c: (c.to(c.device, copy=True), c.imag.float()),
    "like": lambda t, z, c: (t.zeros_like(c), t.ones_like(c), c.new_ones(2), t.full_like(c, 1j)),
    "numbers": lambda t, z, c: (c.tolist(), c[0, 0].item(), complex(c[1, 1]), c.imag[0, 1].item()),
    "text": lambda t, z, c: (repr(c), repr(c.imag), f"{c[0, 0]}", str(z.mH)),
    "compare": lambda t, z, c: (c == z, t.equal(c, z), t.equal(c, z.conj()), c.imag == -z.imag),
    "pointwise": lambda t, z, c: (c * 2, c + z, c.abs() > 3, -c[0], c.imag + 1, c.exp().real > 0),
    "neg": lambda t, z, c: (-c.imag, c.imag.neg(), c.imag.abs(), c.imag.sign()),
    "reduce": lambda t, z, c: (c.sum(), c.mean(0), c.prod(1), c.imag.max(), c.imag.cumsum(0)),
    "products": lambda t, z, c: (c @ z, z.mH @ z, t.dot(c[0], z[0]), t.vdot(c[0], z[0])),
    "several": lambda t, z, c: (t.cat([c, z]), t.stack([c, c]), t.where(c.real > 2, c, z)),
    "parts": lambda t, z, c: (t.complex(c.imag, c.real), t.polar(c.imag, c.real).resolve_conj()),
    "index": lambda t, z, c: (c[t.tensor([1])], c[c.real > 2], c.index_select(0, t.tensor([1]))),
    "gather": lambda t, z, c: c.gather(0, t.tensor([[1, 0]])),
    "flips": lambda t, z, c: (c.flip(0), c.roll(1), t.rot90(c), c.repeat(1, 2)),
    "linalg": lambda t, z, c: (t.linalg.inv(c).imag.gt(0), t.linalg.det(c).imag.gt(0)),
    "data dependent": lambda t, z, c: (c.nonzero(), c.masked_select(c.real > 2), c.imag.unique()),
    "force numpy": lambda t, z, c: [x.numpy(force=True).tolist() for x in (c, c.imag)],
    "tensor of": lambda t, z, c: (t.asarray(c) is c, t.tensor(c.tolist())),
    "parameter": lambda t, z, c: t.nn.Parameter(c).detach(),
    "einsum": lambda t, z, c: t.einsum("ij,jk->ik", c, z.mH),
    "is nonzero": lambda t, z, c: (t.is_nonzero(c[0, 0]), bool(c[0, 0]), z in [c.sum()]),
    "iterate": lambda t, z, c: list(c),
}  # fmt: skip

REFUSED: dict[str, Row] = {
    "numpy": lambda t, z, c: c.numpy(),
    "numpy of imag": lambda t, z, c: c.imag.numpy(),
    "asarray": lambda t, z, c: np.asarray(c),
    "view_as_real": lambda t, z, c: t.view_as_real(c),
    "view as reals": lambda t, z, c: c.view(t.float64),
    "view as itself": lambda t, z, c: c.view(t.complex128),
    "view imag": lambda t, z, c: c.imag.view(t.int64),
    "dlpack": lambda t, z, c: t.from_dlpack(c),
    "leaf": lambda t, z, c: z.requires_grad_().conj().mul_(2),
}


@pytest.mark.parametrize("name", READ)
def test_reading(name: str) -> None:
    same(READ[name])


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    ours, theirs = outcome(lucerne, REFUSED[name]), outcome(torch, REFUSED[name])
    assert ours == theirs
    assert ours[0][0] in ("RuntimeError", "BufferError")


def test_a_conjugate_has_no_physical_memory_for_others() -> None:
    with pytest.raises(BufferError, match="negative bit"):
        matrix(lucerne).conj().imag.__dlpack__()


# ---- writing ---------------------------------------------------------------------------------


def _out(t: Any, op: str, out: Any, *args: Any) -> Any:
    return getattr(t, op)(*args, out=out)


WRITES: dict[str, Row] = {
    "mul_": lambda t, z, c: c.mul_(2j),
    "zero_": lambda t, z, c: c.mul_(0).abs(),
    "fill_": lambda t, z, c: c.fill_(1 + 2j),
    "copy_ reals": lambda t, z, c: c.copy_(t.ones(2, 2)),
    "copy_ conj": lambda t, z, c: c.copy_(t.full((2, 2), 1 + 2j).conj()),
    "copy_ itself": lambda t, z, c: (c.copy_(z), z),
    "copy_ from": lambda t, z, c: z.copy_(c),
    "broadcast": lambda t, z, c: c.copy_(t.tensor([1j, 2])),
    "both": lambda t, z, c: z.mul_(c),
    "both ways": lambda t, z, c: c.add_(z),
    "sin_": lambda t, z, c: c.mul_(0).add_(0.5j).real,
    "square": lambda t, z, c: c.pow_(2),
    "composite": lambda t, z, c: c.addmm_(z, z.mH),
    "triu_": lambda t, z, c: c.T.triu_(),
    "imag fill": lambda t, z, c: c.imag.fill_(7),
    "imag add bools": lambda t, z, c: c.imag.add_(t.tensor([True, False])),
    "imag copy ints": lambda t, z, c: c.imag.copy_(t.tensor([1, 2])),
    "imag relu": lambda t, z, c: c.imag.clamp_(min=0),
    "real": lambda t, z, c: c.real.mul_(3),
    "set item": lambda t, z, c: c.__setitem__(0, t.tensor([9j, 8])),
    "set number": lambda t, z, c: c.__setitem__((slice(None), 1), 4 + 3j),
    "set where": lambda t, z, c: c.__setitem__(c.real > 2, 1j),
    "set at": lambda t, z, c: c.__setitem__((t.tensor([0, 1]), t.tensor([1, 1])), 2j),
    "index_add_": lambda t, z, c: c.index_add_(0, t.tensor([1]), t.full((1, 2), 1j, dtype=c.dtype)),
    "masked_fill_": lambda t, z, c: c.masked_fill_(c.real > 2, 3 - 1j),
    "scatter_": lambda t, z, c: c.scatter_(0, t.tensor([[1, 0]]), z[:1] * 1),
    "conj_physical_": lambda t, z, c: c.conj_physical_(),
    "transpose_": lambda t, z, c: c.transpose_(0, 1).mul_(2),
    "t_": lambda t, z, c: c.t_().add_(1j),
    "unsqueeze_": lambda t, z, c: c.unsqueeze_(0).mul_(1j),
    "resize_": lambda t, z, c: c.resize_(2).add_(1j),
    "set_": lambda t, z, c: c.set_(z.clone()),
    "detach": lambda t, z, c: c.detach().mul_(1j),
    "data": lambda t, z, c: c.data.mul_(1j),
    "set data": lambda t, z, c: (setattr(c, "data", z.clone()), c),
    "adjoint": lambda t, z, c: z.mH.add_(t.tensor([1j, 2])),
    "twice": lambda t, z, c: c.conj().add_(1j),
    "column": lambda t, z, c: c[:, 1].mul_(1j),
    "out": lambda t, z, c: _out(t, "add", c, z, 1j),
    "out of both": lambda t, z, c: _out(t, "mul", c, c, z),
    "out of matmul": lambda t, z, c: _out(t, "matmul", c, z.clone(), c.clone()),
    "out in a row": lambda t, z, c: _out(t, "sum", c[0], z.clone(), 0),
    "out imag": lambda t, z, c: _out(t, "neg", c.imag, t.ones(2, 2, dtype=t.float64)),
    "version": lambda t, z, c: (c.add_(1)._version, z._version, z.add_(1)._version, c._version),
    "load": lambda t, z, c: t.nn.ParameterList([t.nn.Parameter(z)]).load_state_dict({"0": c}) and z,
}  # fmt: skip


@pytest.mark.parametrize("name", WRITES)
def test_writing(name: str) -> None:
    same(WRITES[name])


def test_random_numbers_go_through_the_view() -> None:
    z = matrix(lucerne)
    c = z.conj().normal_()
    assert z.tolist() == [[x.conjugate() for x in row] for row in c.tolist()]
    lucerne.manual_seed(0)
    c.imag.uniform_(1, 2)
    assert (z.imag <= -1).all()
    assert (c.imag >= 1).all()


# ---- every view op ----------------------------------------------------------------------------

VIEWS: dict[str, Callable[[Any], Any]] = {
    "view": lambda x: x.view(-1),
    "transpose": lambda x: x.transpose(0, 1),
    "permute": lambda x: x.permute(1, 0),
    "t": lambda x: x.t(),
    "expand": lambda x: x.expand(3, 2, 2)[0],
    "unsqueeze": lambda x: x.unsqueeze(1),
    "squeeze": lambda x: x[None].squeeze(),
    "alias": lambda x: x.view_as(x),
    "select": lambda x: x.select(0, 1),
    "ops.aten.slice": lambda x: x[:, 1:],
    "diagonal": lambda x: x.diagonal(),
    "Tensor.unfold": lambda x: x.unfold(0, 1, 1),
    "as_strided": lambda x: x.as_strided((2,), (1,), x.storage_offset()),
    "real_part": lambda x: x.real,
    "imag_part": lambda x: x.imag,
    "flip_view": lambda x: x.conj(),
    "unbind": lambda x: x.unbind(0)[1],
    "split_with_sizes": lambda x: x.split([1, 1])[0],
}
ELSEWHERE = {"view_dtype", "view_as_real", "view_as_complex"}  # refused, see REFUSED


def test_every_view_op_has_a_row() -> None:
    assert {x.qualified for x in op_.table().values() if x.kind == op_.VIEW} == {*VIEWS, *ELSEWHERE}


@pytest.mark.parametrize("name", VIEWS)
def test_views_pass_the_bit_on(name: str) -> None:
    view = VIEWS[name]
    same(lambda t, z, c: (view(c), shares(view(c), z), view(c).mul_(3)))
    same(lambda t, z, c: (view(z).conj(), view(z).conj().add_(2), view(c.conj())))


def _walk(t: Any, z: Any, names: list[str], compiled: bool = False) -> Any:
    """Views of views, each used and written to."""
    x = z
    for name in names:
        whole = x.ndim == 2 and x.shape == (2, 2)
        x = VIEWS[name](x) if whole or name in ("flip_view", "alias") else x.conj()
    before = x * 2
    x.mul_(3)
    return x, before, x.sum(), z * 1


@given(st.lists(st.sampled_from(sorted(VIEWS)), min_size=1, max_size=4))
def test_chains_of_views(names: list[str]) -> None:
    def row(t: Any, z: Any, c: Any) -> Any:
        return [_walk(t, z, names), _walk(t, c, names)]

    same(row)


# ---- derivatives ------------------------------------------------------------------------------


def _written(y: Any, write: Callable[[Any], Any]) -> Any:
    y = y * 2
    write(y)
    return (y * y).imag.sum() + y.abs().sum()


LOSSES: dict[str, Callable[[Any, Any], Any]] = {
    "conj": lambda t, z: (z.conj() * (1 + 2j)).imag.sum(),
    "square": lambda t, z: (z.conj() * z * (1 + 2j)).imag.sum(),
    "imag": lambda t, z: (z.conj().imag ** 3).sum(),
    "real": lambda t, z: (z.conj().real ** 3).sum(),
    "adjoint": lambda t, z: (z.mH @ z @ z).abs().sum(),
    "rows": lambda t, z: (z.conj()[0] * z.T.conj()[1]).real.sum(),
    "in place": lambda t, z: _written(z, lambda y: y.conj().mul_(1j)),
    "in a row": lambda t, z: _written(z, lambda y: y.conj()[0].mul_(1j)),
    "a row first": lambda t, z: _written(z, lambda y: y[0].conj().pow_(2)),
    "in imag": lambda t, z: _written(z, lambda y: y.conj().imag.mul_(3)),
    "copy in": lambda t, z: _written(z, lambda y: y.conj().copy_(z * z)),
    "copy part": lambda t, z: _written(z, lambda y: y.conj()[:, 0].copy_(z[1])),
    "resolve": lambda t, z: (z.conj().resolve_conj() * z).real.sum(),
    "physical": lambda t, z: (z.conj_physical() * z * 1j).imag.sum(),
}


def gradients(t: Any, loss: Callable[[Any, Any], Any], conj: bool) -> list[Any]:
    z = matrix(t).requires_grad_()
    x = z.conj() if conj else z
    value = loss(t, x)
    (first,) = t.autograd.grad(value, z, create_graph=True)
    second = None
    if first.requires_grad:
        (second,) = t.autograd.grad(first.abs().sum(), z, retain_graph=True, allow_unused=True)
    value.backward()
    assert z.grad is not None
    found = [value.detach(), first.detach(), z.grad]
    found += [] if second is None else [second]
    return [np.asarray(x.resolve_conj().tolist()) for x in found]


@pytest.mark.parametrize("conj", [False, True])
@pytest.mark.parametrize("name", LOSSES)
def test_gradients(name: str, conj: bool) -> None:
    ours, theirs = (gradients(t, LOSSES[name], conj) for t in (lucerne, torch))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_differences_of_a_conjugate() -> None:
    x = matrix(lucerne).conj().detach().requires_grad_()
    assert lucerne.autograd.gradcheck(lambda q: q * q.conj() * q, (x,))


def test_history() -> None:
    def row(t: Any) -> Any:
        z = matrix(t).requires_grad_()
        y = z * 1
        c = y.conj()
        before = [c.grad_fn, c[0].grad_fn]
        c.mul_(2)
        nodes = [type(x).__name__ for x in (*before, c.grad_fn, y.grad_fn)]
        return nodes, c._base is y, y._version

    assert row(lucerne) == row(torch)


def test_stale_values_are_noticed() -> None:
    def message(t: Any) -> str:
        y = matrix(t).requires_grad_() * 1
        loss = (y * y).sum().abs()
        y.conj().mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
        x = matrix(t).requires_grad_() * 1
        x.mul_(x.conj())
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            x.sum().abs().backward()
        return "raised"

    assert message(lucerne) == message(torch)


# ---- compiled, and transformed ----------------------------------------------------------------


def _half(y: Any) -> Any:
    y = y * 1
    y.conj()[0].mul_(2j)
    return y


CALLS: dict[str, Callable[[Any], Any]] = {
    "read": lambda x: x * 2 + x.sum(),
    "views": lambda x: (x.conj(), x.imag, x.real, x.mH, x[0]),
    "write": lambda x: x.mul_(2j).sum(),
    "write conj": lambda x: (x.conj().mul_(2j), x + 1),
    "write imag": lambda x: (x.conj().imag.fill_(7), x * 1),
    "made inside": lambda x: ((x * 2).conj(), (x * 2).conj().imag),
    "half": lambda x: _half(x),
    "numbers": lambda x: x.imag.exp() + x.conj().imag,
    "matmul": lambda x: x.mH @ x,
}


@pytest.mark.parametrize("name", CALLS)
def test_compiled_is_eager(name: str) -> None:
    fn = CALLS[name]
    compiled = lucerne.compile(fn)
    arguments: list[Callable[[Any], Any]] = [
        lambda z: z, lambda z: z.conj(), lambda z: z, lambda z: z.mH, lambda z: z.conj()[:, :1],
        lambda z: z.conj().conj(), lambda z: z.conj(),
    ]  # fmt: skip
    for argument in arguments * 2:
        ours, theirs = matrix(lucerne), matrix(lucerne)
        a, b = compiled(argument(ours)), fn(argument(theirs))
        assert seen(lucerne, a) == seen(lucerne, b)
        for part in (*a, *b) if isinstance(a, tuple) else ():
            part.mul_(2)  # what shares memory with the argument does so in both
        assert repr(ours.tolist()) == repr(theirs.tolist())
    assert len(compiled.entries) <= len(arguments)


def test_a_version_is_made_once_for_a_conjugate() -> None:
    compiled = lucerne.compile(CALLS["read"])
    for _ in range(5):
        compiled(matrix(lucerne))
        compiled(matrix(lucerne).conj())
    assert len(compiled.entries) == 2


@pytest.mark.parametrize("conj", [False, True])
@pytest.mark.parametrize("name", LOSSES)
def test_compiled_gradients(name: str, conj: bool) -> None:
    def gradient(fn: Any) -> Any:
        z = matrix(lucerne).requires_grad_()
        fn(lucerne, z.conj() if conj else z).backward()
        return np.asarray(z.grad.tolist())

    loss = LOSSES[name]
    np.testing.assert_allclose(gradient(lucerne.compile(loss)), gradient(loss), rtol=1e-12)


def test_other_sizes() -> None:
    fn = lucerne.compile(lambda x: (x * 1j, x.imag.exp()))
    for n in (3, 4, 5, 7, 9):
        z = lucerne.randn(n, 2, dtype=lucerne.complex128)
        for x in (z, z.conj()):
            made, exp = fn(x)
            assert lucerne.allclose(made, x.resolve_conj() * 1j)
            assert lucerne.allclose(exp, x.imag.resolve_neg().exp())
    assert len(fn.entries) == 4  # one for the first sizes and one for all others, of each kind


def test_held_conjugate() -> None:
    held = matrix(lucerne).conj()
    fn = lucerne.compile(lambda x: (x @ held, held.add_(x)))
    for _ in range(3):
        x = matrix(lucerne)
        want, sum_ = x @ held.resolve_conj(), held.resolve_conj() + x
        product, written = fn(x)
        assert lucerne.allclose(product, want)
        assert lucerne.allclose(written, sum_)
        assert written is held
        assert held.is_conj()


def test_branches() -> None:
    def fn(flag: Any, x: Any) -> Any:
        return lucerne.cond(
            flag, lambda q: q.conj().imag + q.mH.real, lambda q: q.conj().real, (x,)
        )

    compiled = lucerne.compile(fn)
    for flag in map(lucerne.tensor, (True, False)):
        for conj in (False, True):
            found = []
            for call in (fn, compiled):
                z = matrix(lucerne).requires_grad_()
                call(flag, z.conj() if conj else z).mul(2).sum().backward()
                found.append(z.grad.tolist())
            assert found[0] == found[1]


def test_exported() -> None:
    class Module(lucerne.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            y = x * 2
            y.conj().mul_(1j)
            return y.conj(), y.conj().imag, x.mH @ x

    z, module = matrix(lucerne), Module()
    for example in (z, z.conj()):
        program = lucerne.export.export(module, (example,)).module()
        for x in (z, z.conj()):
            for a, b in zip(program(x), module(x), strict=True):
                assert lucerne.allclose(a.resolve_conj(), b.resolve_conj().resolve_neg())
    module.register_buffer("held", z.conj())
    module.forward = lambda x: x + module.held
    with pytest.raises(lucerne.export.ExportError, match="resolve_conj"):
        lucerne.export.export(module, (z,))


def test_lazy() -> None:
    def fn(z: Any) -> Any:
        c = z.conj()
        made = c * 2
        c.mul_(1j)
        return made, c, c.imag + 1, z

    want = seen(lucerne, fn(matrix(lucerne)))
    with lazy():
        found = fn(matrix(lucerne))
    assert seen(lucerne, found) == want


TRANSFORMED: dict[str, Callable[[Any, Any], Any]] = {
    "vmap": lambda f, z: f.vmap(lambda x: x.conj() * 2j)(z),
    "vmap of conj": lambda f, z: f.vmap(lambda x: x * 2j)(z.conj()),
    "vmap both": lambda f, z: f.vmap(lambda x: x.conj() * x)(z.conj()),
    "vmap returns": lambda f, z: f.vmap(lambda x: x.conj())(z),
    "vmap view": lambda f, z: f.vmap(lambda x: x.conj()[0])(z),
    "vmap twice": lambda f, z: f.vmap(f.vmap(lambda x: x.conj() + 1j))(z),
    "vmap in place": lambda f, z: (f.vmap(lambda x: x.conj().mul_(2j) * 1)(z), z),
    "vmap in part": lambda f, z: f.vmap(_half)(z[None]),
    "grad": lambda f, z: f.grad(lambda x: (x.conj() * x * (1 + 2j)).imag.sum())(z),
    "grad imag": lambda f, z: f.grad(lambda x: (x.conj().imag ** 3).sum())(z) + 0,
    "grad of conj": lambda f, z: f.grad(lambda x: (x * x).imag.sum())(z.conj()),
    "grad in place": lambda f, z: f.grad(lambda x: _half(x).abs().sum())(z),
    "vmap grad": lambda f, z: f.vmap(f.grad(lambda x: (x.conj() * x * 1j).imag.sum()))(z),
    "jvp": lambda f, z: f.jvp(lambda x: x.conj() * 2j, (z,), (z * 1j,)),
    "jvp imag": lambda f, z: f.jvp(lambda x: x.conj().imag * 2, (z,), (z * 1j,)),
    "jvp in place": lambda f, z: f.jvp(_half, (z,), (z * 1j,)),
    "jvp of conj": lambda f, z: f.jvp(lambda x: x * x, (z.conj(),), (z.mH,)),
    "vjp": lambda f, z: f.vjp(lambda x: x.conj() * x, z)[1](z)[0],
    "functionalize": lambda f, z: f.functionalize(_half)(z),
    "functionalize argument": lambda f, z: (f.functionalize(lambda x: x.conj().mul_(2j) + 1)(z), z),
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_transformed(name: str) -> None:
    def values(t: Any) -> list[Any]:
        found = TRANSFORMED[name](t.func, matrix(t))
        parts = found if isinstance(found, tuple) else (found,)
        return [np.asarray(x.resolve_conj().resolve_neg().tolist()) for x in parts]

    for a, b in zip(values(lucerne), values(torch), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_negated_views_in_vmap() -> None:
    z = matrix(lucerne)  # (torch's vmap has no rule for them)
    assert lucerne.vmap(lambda x: x.imag + 1)(z.conj()).tolist() == (1 - z.imag).tolist()
    assert lucerne.vmap(lambda x: x.conj().imag + 1)(z).tolist() == (1 - z.imag).tolist()


# ---- optimizers, loaders, files ---------------------------------------------------------------


@pytest.mark.parametrize("kind", ["SGD", "Adam", "RMSprop"])
def test_a_step_along_a_conjugate_gradient(kind: str) -> None:
    def step(t: Any) -> Any:
        p = t.nn.Parameter(matrix(t))
        optimizer = getattr(t.optim, kind)([p], 0.1)
        (p.conj() * (1 + 2j)).real.sum().backward()
        p.grad = p.grad.resolve_conj()
        optimizer.step()
        return np.asarray(p.tolist())

    np.testing.assert_allclose(step(lucerne), step(torch), rtol=1e-12)


def test_other_doors(tmp_path: Any) -> None:
    z = matrix(lucerne)
    batch = lucerne.utils.data.default_collate([z.conj(), z.conj()])
    assert batch.tolist() == [z.conj().tolist()] * 2
    path = str(tmp_path / "z.safetensors")
    lucerne.io.safetensors.save_file({"z": z.real.clone(), "n": z.conj().imag}, path)
    assert lucerne.io.safetensors.load_file(path)["n"].tolist() == (-z.imag).tolist()


def test_files_between_the_two() -> None:
    for one, other in ((lucerne, torch), (torch, lucerne)):
        z = matrix(one)
        stream = io.BytesIO()
        one.save([z, z.conj(), z.clone().conj().imag], stream)
        stream.seek(0)
        a, b, c = other.load(stream)
        assert seen(other, [a, b, c]) == seen(one, [z, z.conj(), z.conj().imag])
        b.mul_(2j)
        assert repr(a.tolist()) == repr(z.mul_(-2j).tolist())
