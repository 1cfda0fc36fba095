"""Arguments that used to be taken and forgotten: they work, or are refused, or say so once."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import lucerne as lu
from lucerne import nn
from lucerne._src.base.process import notices
from lucerne.fx.experimental.proxy_tensor import make_fx
from lucerne.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts
from lucerne.utils.data import DataLoader
from lucerne.utils.data.datapipes.iter import IterableWrapper
from lucerne.utils.data.datapipes.map import SequenceWrapper

X = lu.arange(3.0)
FILE = io.BytesIO

REFUSED: list[tuple[str, Callable[[], Any], type[Exception], str]] = [
    ("pinned zeros", lambda: lu.zeros(2, pin_memory=True), RuntimeError, "requires a CUDA"),
    ("pinned data", lambda: lu.tensor([1], pin_memory=True), RuntimeError, "no pinned memory"),
    ("pinned copy", lambda: X.new_tensor([1], pin_memory=True), RuntimeError, "no pinned memory"),
    ("pinning", lambda: X.pin_memory(), RuntimeError, "no pinned memory allocator"),
    ("names", lambda: lu.zeros(2, names=("a", "b")), TypeError, "unexpected keyword"),
    ("new", lambda: X.new(2, dtype=lu.int32), TypeError, "unexpected keyword"),
    ("new_tensor", lambda: X.new_tensor([1], foo=1), TypeError, "unexpected keyword"),
    ("type", lambda: X.type(lu.int32, foo=1), TypeError, "unexpected keyword"),
    ("layout", lambda: lu.tril_indices(2, 2, layout=lu.sparse_coo), RuntimeError, "only the str"),
    ("frequencies", lambda: lu.fft.fftfreq(3, layout=lu.sparse_coo), RuntimeError, "only the str"),
    ("segments", lambda: lu.segment_reduce(X, "sum", indices=lu.tensor([0])), RuntimeError,
     "indices based reduction is not supported yet"),
    ("short segments", lambda: lu.segment_reduce(X, "sum", lengths=lu.tensor([2])), RuntimeError,
     "when !unsafe"),
    ("options", lambda: lu.compile(lambda x: x, options={"shadw": 1}), RuntimeError,
     "Unexpected optimization option shadw, known options are"),
    ("mode", lambda: lu.compile(lambda x: x, mode="fast"), ValueError, "mode is one of"),
    ("pre_dispatch", lambda: make_fx(lu.exp, pre_dispatch=True), NotImplementedError,
     "below autograd"),
    ("opset", lambda: lu.export.load(FILE(), expected_opset_version={"aten": 1}),
     NotImplementedError, "a file names its own version"),
    ("signature", lambda: lu.export.export(
        nn.Linear(2, 2), (lu.ones(1, 2),), preserve_module_call_signature=("a",)),
     NotImplementedError, "submodules are not part"),
    ("pickle_module", lambda: lu.save(X, FILE(), pickle_module=io), ValueError, "is not used"),
    ("masked_grad", lambda: lu.eye(2).to_sparse().to_dense(masked_grad=False), NotImplementedError,
     "masked_grad=False is not supported"),
    ("combine_mode", lambda: lu.control_flow.associative_scan(
        lambda a, b: a + b, X, 0, combine_mode="fast"), ValueError, "'pointwise' or 'generic'"),
    ("seqlen", lambda: lu.nested.nested_tensor_from_jagged(
        X, lu.tensor([0, 1, 3]), min_seqlen=2), ValueError, "lengths from 1 to 2"),
    ("other", lambda: lu.nested.nested_tensor_from_jagged(
        X, lu.tensor([0, 1, 3]), max_seqlen=1), ValueError, "lengths from 1 to 2"),
    ("swizzle", lambda: nn.functional.scaled_mm(
        X, X, X, 0, X, 0, swizzle_a=nn.functional.SwizzleType.SWIZZLE_32_4_4), NotImplementedError,
     "undo the swizzle"),
    ("both gradients", lambda: lu.autograd.backward(X, X, grad_variables=X), RuntimeError,
     "both passed"),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:`grad_variables` is deprecated")
@pytest.mark.parametrize(
    ("call", "kind", "text"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED]
)
def test_refused(call: Callable[[], Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        call()


IDENTITY = lu.compile(lambda x: x + 1, mode="default")
ONCE: list[tuple[Callable[[], Any], str]] = [
    (lambda: lu.compile(lambda x: x, mode="reduce-overhead"), "same as 'default' here: a compiled"),
    (lambda: lu.compile(lambda x: x, mode="max-autotune"), "same as 'default' here: kernels"),
    (lambda: lu.set_num_interop_threads(1), "of no effect: ops run one after the other"),
]


@pytest.mark.parametrize(("call", "text"), ONCE)
def test_said_once(call: Callable[[], Any], text: str) -> None:
    notices.forget()
    with pytest.warns(UserWarning, match=text):
        call()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call()


WARNED: list[tuple[str, Callable[[], Any], type[Warning], str]] = [
    ("pinned batches", lambda: list(DataLoader(range(2), pin_memory=True)), UserWarning,
     "'pin_memory' argument is set as true but no accelerator is found"),
    ("only_inputs", lambda: lu.autograd.grad(
        (Y := lu.ones(1, requires_grad=True)) * 2, Y, only_inputs=False), FutureWarning,
     "only_inputs argument is deprecated"),
    ("optimize", lambda: lu.jit.script(lambda x: x, optimize=True), FutureWarning, "`optimize`"),
    ("mods", lambda: lu.utils.flop_counter.FlopCounterMode(nn.Linear(1, 1)), UserWarning,
     "mods argument is not needed"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "kind", "text"), [r[1:] for r in WARNED], ids=[r[0] for r in WARNED]
)
def test_warned_of_as_torch_does(call: Any, kind: type[Warning], text: str) -> None:
    with pytest.warns(kind, match=text):
        call()


def _gathered() -> Any:
    x = lu.ones(3, 2, requires_grad=True)
    at = lu.tensor([[0, 1], [1, 1], [0, 0]])
    (x.gather(1, at, sparse_grad=True) * lu.arange(6.0).reshape(3, 2)).sum().backward()
    assert x.grad.is_sparse
    assert x.grad._nnz() == 6
    return x.grad.to_dense().tolist()


def _grads_by_the_old_name() -> Any:
    x = lu.ones(2, requires_grad=True)
    with pytest.warns(FutureWarning, match="grad_variables"):
        lu.autograd.backward(x * 2, grad_variables=lu.tensor([1.0, 3.0]))
    return x.grad.tolist()


def _items_written_to(deepcopy: bool) -> Any:
    data = [[1], [2]]
    for item in IterableWrapper(data, deepcopy=deepcopy):
        item.append(0)
    SequenceWrapper(data, deepcopy=deepcopy)[0].append(3)
    return data


class Plain:
    """A class that no file may name."""


def _unsafe_file() -> Any:
    lu.serialization.add_safe_globals([Plain])
    file = FILE()
    lu.save({"a": Plain()}, file)
    lu.serialization.clear_safe_globals()
    told = []
    for given in (None, False):
        file.seek(0)
        with pytest.raises(Exception, match="was not an allowed global") as error:
            lu.load(file, weights_only=given)
        told.append("never runs code" in str(error.value))
    return told


FOLLOWED: list[tuple[str, Callable[[], Any], Any]] = [
    ("sparse_grad", _gathered, [[0.0, 1.0], [0.0, 5.0], [9.0, 0.0]]),
    ("grad_variables", _grads_by_the_old_name, [2.0, 6.0]),
    ("deepcopy", lambda: _items_written_to(True), [[1], [2]]),
    ("no deepcopy", lambda: _items_written_to(False), [[1, 0, 3], [2, 0]]),
    ("weights_only", _unsafe_file, [False, True]),
    ("memory_format", lambda: lu.ones(1, 2, 3, 3).cpu(memory_format=lu.channels_last).stride(),
     (18, 1, 6, 2)),
    ("new on a device", lambda: X.new(2, device="meta").device.type, "meta"),
    ("from_dlpack", lambda: lu.from_dlpack(X, device="cpu").tolist(), [0.0, 1.0, 2.0]),
    ("unsafe", lambda: lu.segment_reduce(X, "sum", lengths=lu.tensor([2]), unsafe=True).tolist(),
     [1.0]),
]  # fmt: skip


@pytest.mark.parametrize(("call", "want"), [r[1:] for r in FOLLOWED], ids=[r[0] for r in FOLLOWED])
def test_followed(call: Callable[[], Any], want: Any) -> None:
    assert call() == want


@pytest.mark.parametrize("allowed", [False, True])
def test_what_a_checkpoint_keeps_may_not_change(allowed: bool) -> None:
    def contexts() -> Any:
        return create_selective_checkpoint_contexts([lu.exp], allowed)

    def f(x: Any) -> Any:
        y = x.exp()
        kept.append(y)
        return y.sin()

    kept: list[Any] = []
    x = lu.ones(2, requires_grad=True)
    y = checkpoint(f, x, use_reentrant=False, context_fn=contexts)
    with lu.no_grad():
        kept[0].detach().mul_(2)
    if allowed:
        y.sum().backward()
    else:
        with pytest.raises(RuntimeError, match="has been mutated"):
            y.sum().backward()


STREAMS: list[tuple[str, Callable[[Any], Any]]] = [
    ("equal", lambda t: t.Stream() == t.Stream()),
    ("hash", lambda t: len({t.Stream(), t.Stream()})),
    ("text", lambda t: repr(t.Stream())),
    ("number", lambda t: t.Stream().stream_id),
    ("device", lambda t: str(t.Stream().device)),
]


@pytest.mark.torch
@pytest.mark.parametrize(("name", "see"), STREAMS, ids=[name for name, _ in STREAMS])
def test_streams_of_the_host_are_torchs(name: str, see: Callable[[Any], Any]) -> None:
    assert see(lu) == see(pytest.importorskip("torch"))
