"""Modules side by side: torch needs an accelerator for these, so their meaning is the oracle."""

import pytest

import lucerne as torch
from lucerne.nn.parallel import parallel_apply


def test_parallel_apply_runs_each_module_on_its_inputs() -> None:
    layers = [torch.nn.Linear(3, 2), torch.nn.Linear(3, 2, bias=False)]
    inputs = [(torch.ones(1, 3),), torch.zeros(2, 3)]
    first, second = parallel_apply(layers, inputs)
    assert torch.equal(first, layers[0](torch.ones(1, 3)))
    assert torch.equal(second, torch.zeros(2, 2))


def test_parallel_apply_passes_keywords() -> None:
    doubled = parallel_apply([torch.add], [(torch.ones(2), torch.ones(2))], [{"alpha": 2}])
    assert doubled[0].tolist() == [3.0, 3.0]
    with pytest.raises(AssertionError, match="not equal to the number of inputs"):
        parallel_apply([torch.add], [])
