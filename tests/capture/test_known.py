"""What is known while a function is captured, what is loaded for it, and what is let go."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from typing import Any

import pytest

import lucerne as torch
from lucerne.nn.utils import rnn


def of_a_list(x: Any) -> Any:
    lengths = torch.tensor([3, 1, 2])
    longest, order = torch.sort(lengths, descending=True)
    return x * longest.tolist()[0] + order.sum()


def of_a_range(x: Any) -> Any:
    for i in torch.arange(3):
        x = x + int(i)
    return x * 2 if torch.arange(4).sum() > 3 else x


def of_a_mask(x: Any) -> Any:
    return x[torch.tensor([True, False, True])] * torch.arange(4)[torch.arange(4) > 1].numel()


def of_a_tensor_that_was_written(x: Any) -> Any:
    steps = torch.zeros(3, dtype=torch.int64)
    steps[1] = 4
    steps += 1
    return x * int(steps.max())


def of_packed_sequences(x: Any) -> Any:
    batch = x.repeat(2, 1).unsqueeze(2)
    packed = rnn.pack_padded_sequence(batch, [1, 3], True, enforce_sorted=False)
    padded, lengths = rnn.pad_packed_sequence(packed, batch_first=True)
    return padded.squeeze(2), lengths


KNOWN = [of_a_list, of_a_range, of_a_mask, of_a_tensor_that_was_written, of_packed_sequences]


@pytest.mark.parametrize("fn", KNOWN, ids=lambda fn: fn.__name__)
def test_values_of_constants_are_known(fn: Any) -> None:
    compiled = torch.compile(fn, fullgraph=True)
    for k in range(3):
        x = torch.arange(3.0) + k
        torch.testing.assert_close(compiled(x), fn(x))
    assert len(compiled.entries) == 1


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x * int(x.sum()),
        lambda x: x * (torch.arange(3) + x).tolist()[0],
        lambda x: x * torch.rand(1).item(),
    ],
    ids=["argument", "of both", "drawn"],
)
def test_other_values_are_not(fn: Any) -> None:
    with pytest.raises(Exception, match="looks at the values"):
        torch.compile(fn, fullgraph=True)(torch.ones(3))


def test_a_process_that_only_calls_does_not_load_the_tracer() -> None:
    code = (
        "import sys, lucerne; lucerne.compile(lambda x: x); "
        "late = ['capture.cache.build', 'pipeline', 'capture.bytecode', 'capture.breaks.resume']; "
        "late = ['lucerne._src.' + m for m in late] + ['logging', 'html']; "
        "print([m for m in late if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_part_lets_go_of_the_first_call() -> None:
    class Big:
        value: Any

    seen = []

    def fn(x: Any) -> Any:
        big = Big()
        seen.append(weakref.ref(big))
        big.value = x * 2
        print(end="")
        return big.value + 1

    compiled = torch.compile(fn)
    for _ in range(2):
        x = torch.ones(3)
        given = weakref.ref(x)
        compiled(x)
        del x
        gc.collect()
        assert given() is None
    assert [made() for made in seen] == [None, None]
