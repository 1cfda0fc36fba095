"""Tensors in shared memory, and processes that get them."""

from __future__ import annotations

import os
import pickle
from typing import Any

import numpy as np
import pytest

import lucerne
import lucerne.multiprocessing as mp


def _add(index: int, x: Any, gradient: Any) -> None:
    x[index] += 10 + index
    gradient.add_(1)


def _fail(index: int) -> None:
    if index == 1:
        raise ValueError("no luck")


def _vanish(index: int) -> None:
    if index == 1:
        os._exit(7)


def _echo(inbox: Any, outbox: Any) -> None:
    for item in iter(inbox.get, None):
        item.add_(1)
        outbox.put(item * 2)
    inbox.get()


def test_share_memory_keeps_values_views_and_gradients() -> None:
    x = lucerne.arange(6.0).reshape(2, 3)
    view, doubled = x[1], x * 2
    assert not x.is_shared()
    assert x.share_memory_() is x
    assert x.is_shared()
    assert view.is_shared()
    view.mul_(10)
    x.add_(1)
    assert x.tolist() == [[1, 2, 3], [31, 41, 51]]
    assert (x * 2 - doubled).tolist() == [[2, 2, 2], [56, 74, 92]]
    assert x.untyped_storage().is_shared()
    w = lucerne.ones(3, requires_grad=True)
    w.share_memory_()
    (w * 3).sum().backward()
    assert w.grad.tolist() == [3, 3, 3]


def test_empty_and_meta_tensors_are_not_moved() -> None:
    assert not lucerne.empty(0).share_memory_().is_shared()
    assert not lucerne.empty(3, device="meta").share_memory_().is_shared()


def test_plain_pickles_copy() -> None:
    x = lucerne.ones(3).share_memory_()
    y = pickle.loads(pickle.dumps(x))
    y.add_(1)
    assert x.tolist() == [1, 1, 1]


def test_processes_write_to_the_same_memory() -> None:
    x, total = lucerne.zeros(2).share_memory_(), lucerne.zeros(1).share_memory_()
    mp.spawn(_add, (x, total), nprocs=2)
    assert x.tolist() == [10, 11]
    assert float(total) in (1.0, 2.0)


def test_failures_are_raised_here() -> None:
    with pytest.raises(mp.ProcessRaisedException, match=r"(?s)Process 1 .*no luck") as raised:
        mp.spawn(_fail, nprocs=2)
    assert raised.value.error_index == 1
    with pytest.raises(mp.ProcessExitedException, match="exit code 7") as exited:
        mp.start_processes(_vanish, nprocs=2, start_method="fork")
    assert exited.value.exit_code == 7


def test_tensors_on_queues_are_shared() -> None:
    context = mp.get_context("fork")
    inbox, outbox = context.SimpleQueue(), context.SimpleQueue()
    process = context.Process(target=_echo, args=(inbox, outbox), daemon=True)
    process.start()
    x = lucerne.arange(1000.0)
    inbox.put(x)
    assert lucerne.equal(outbox.get(), x * 2)
    assert x[:3].tolist() == [1, 2, 3]
    inbox.put(None)
    inbox.put(None)
    process.join(5)
    assert process.exitcode == 0


def test_history_stays_here() -> None:
    x = lucerne.ones(2, requires_grad=True) * 2
    queue = mp.get_context("fork").SimpleQueue()
    with pytest.raises(RuntimeError, match="Cowardly refusing to serialize non-leaf tensor"):
        queue.put(x)


def test_sharing_strategies() -> None:
    assert mp.get_sharing_strategy() in mp.get_all_sharing_strategies()
    mp.set_sharing_strategy("file_system")
    with pytest.raises(AssertionError, match="invalid sharing strategy 'x'"):
        mp.set_sharing_strategy("x")


def test_from_numpy_is_cut_loose() -> None:
    array = np.zeros(3)
    x = lucerne.from_numpy(array).share_memory_()
    x.add_(1)
    assert array.tolist() == [0, 0, 0]
    assert x.tolist() == [1, 1, 1]
