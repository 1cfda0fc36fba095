"""The tables of modules, optimizers and schedulers: torch passes, and planted faults do not."""

import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conformance import catalog, cli, metrics, names, report, runner, training
from tests.conformance.bridge import Bridge, torch_bridge
from tests.conformance.context import Limits
from tests.conformance.modules import own, samples
from tests.conformance.optimizers import samples as optimizers
from tests.conformance.optimizers import schedulers
from tests.conformance.result import Tally

pytestmark = [pytest.mark.torch, pytest.mark.slow]

FEW = Limits(classes=2)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def run(table: str, name: str, bridge: Bridge, limits: Limits = FEW) -> list[Tally]:
    return training.RUNS[table].check(name, bridge, limits)


# torch against torch

CLEAN = {
    "modules": ["BatchNorm1d", "GRU", "LazyConv2d", "Linear", "TransformerEncoder", "NLLLoss"],
    "module variants": ["Conv1d", "LSTMCell"],
    "own modules": ["Dropout", "EmbeddingBag", "Module", "ParameterDict", "LazyBatchNorm1d"],
    "optimizers": ["Adam", "Muon", "SGD", "SparseAdam"],
    "schedulers": ["CyclicLR", "ReduceLROnPlateau", "SequentialLR", "StepLR"],
    "foreach": ["_foreach_add", "_foreach_norm", "_foreach_zero", "_foreach_lerp", "_foreach_pow"],
}


@pytest.mark.parametrize("table", list(CLEAN))
def test_torch_passes_against_itself(table: str) -> None:
    for name in CLEAN[table]:
        tallies = run(table, name, torch_bridge())
        assert not report.failures_text(tallies, verbose=True)
        assert all(tally.samples for tally in tallies)


# Planted faults


class Altered:
    """A namespace like another one, with some names replaced; None takes a name away."""

    def __init__(self, base: Any, **changed: Any) -> None:
        self._base = base
        self._changed = changed
        self.__name__ = base.__name__

    def __getattr__(self, name: str) -> Any:
        if name not in self._changed:
            return getattr(self._base, name)
        if self._changed[name] is None:
            raise AttributeError(name)
        return self._changed[name]


def subclass(base: type, **members: Any) -> type:
    """A class of the same name that differs in these members."""
    return type(base.__name__, (base,), members)


def wrong_momentum(self: Any, x: Any) -> Any:
    kept, self.momentum = self.momentum, 0.5
    try:
        return torch.nn.BatchNorm1d.forward(self, x)
    finally:
        self.momentum = kept


def scaled_output(self: Any, x: Any) -> Any:
    return torch.nn.Linear.forward(self, x) * 1.0001


def scaled_input_gradient(self: Any, x: Any) -> Any:
    half = x * 0.5 + (x * 0.5).detach()
    return torch.nn.Linear.forward(self, half)


def changed_input(self: Any, x: Any) -> Any:
    y = torch.nn.Linear.forward(self, x)
    x.data.zero_()
    return y


def smaller_weights(self: Any) -> None:
    torch.nn.Linear.reset_parameters(self)
    self.weight.data.mul_(0.999)


def reversed_state(self: Any, *args: Any, **kwargs: Any) -> Any:
    state = torch.nn.GRU.state_dict(self, *args, **kwargs)
    return dict(reversed(state.items()))


def unfrozen(self: Any, *args: Any, **kwargs: Any) -> None:
    torch.nn.Linear.__init__(self, *args, **kwargs)
    self.weight.requires_grad_(False)


def unchecked(self: Any, *args: Any, **kwargs: Any) -> None:
    torch.nn.Module.__init__(self)


def wrong_beta(self: Any, closure: Any = None) -> Any:
    kept = [group["betas"] for group in self.param_groups]
    for group in self.param_groups:
        group["betas"] = (group["betas"][0], 0.99)
    try:
        return torch.optim.Adam.step(self, closure)
    finally:
        for group, betas in zip(self.param_groups, kept, strict=True):
            group["betas"] = betas


def poorer_state(self: Any) -> Any:
    state = torch.optim.Adam.state_dict(self)
    for kept in state["state"].values():
        kept.pop("exp_avg_sq", None)
    return state


def no_load(self: Any, state: Any) -> None:
    return None


def slower(self: Any) -> Any:
    return [lr * 1.001 for lr in torch.optim.lr_scheduler.StepLR.get_lr(self)]


def poorer_scheduler_state(self: Any) -> Any:
    state = torch.optim.lr_scheduler.StepLR.state_dict(self)
    state.pop("last_epoch")
    return state


@dataclass(frozen=True)
class Planted:
    """A fault in one class, and the check that must see it."""

    table: str
    name: str
    check: str
    members: dict[str, Callable[..., Any]] | None  # None: the class is missing


PLANTED = [
    Planted("modules", "BatchNorm1d", "state after", {"forward": wrong_momentum}),
    Planted("modules", "Linear", "value", {"forward": scaled_output}),
    Planted("modules", "Linear", "gradient", {"forward": scaled_input_gradient}),
    Planted("modules", "Linear", "inputs", {"forward": changed_input}),
    Planted("modules", "Linear", "initial", {"reset_parameters": smaller_weights}),
    Planted("modules", "Linear", "parameters", {"__init__": unfrozen}),
    Planted("modules", "Linear", "repr", {"extra_repr": lambda self: "in"}),
    Planted("modules", "GRU", "state keys", {"state_dict": reversed_state}),
    Planted("modules", "GroupNorm", "raised", {"__init__": unchecked}),
    Planted("modules", "Conv1d", "missing", None),
    Planted("module variants", "Conv1d", "missing", None),
    Planted("own modules", "Dropout", "missing", None),
    Planted("own modules", "Identity", "value", {"forward": lambda self, x: x * 1.0001}),
    Planted("optimizers", "Adam", "parameters", {"step": wrong_beta}),
    Planted("optimizers", "Adam", "state keys", {"state_dict": poorer_state}),
    Planted("optimizers", "Adam", "after loading", {"load_state_dict": no_load}),
    Planted("optimizers", "Muon", "missing", None),
    Planted("schedulers", "StepLR", "rates", {"get_lr": slower}),
    Planted("schedulers", "StepLR", "state dict", {"state_dict": poorer_scheduler_state}),
    Planted("schedulers", "StepLR", "exchanged state", {"load_state_dict": no_load}),
    Planted("schedulers", "PolynomialLR", "missing", None),
]


def faulty_torch(fault: Planted) -> Any:
    homes = {"optimizers": torch.optim, "schedulers": torch.optim.lr_scheduler}
    home = homes.get(fault.table, torch.nn)
    kind = getattr(home, fault.name)
    changed = Altered(home, **{fault.name: fault.members and subclass(kind, **fault.members)})
    if fault.table == "schedulers":
        return Altered(torch, optim=Altered(torch.optim, lr_scheduler=changed))
    return Altered(torch, **{"optim" if fault.table == "optimizers" else "nn": changed})


@pytest.mark.parametrize("fault", PLANTED, ids=lambda f: f"{f.name}-{f.check}")
def test_planted_fault_is_caught(fault: Planted) -> None:
    tallies = run(fault.table, fault.name, Bridge(faulty_torch(fault)))
    assert fault.check in {f.check for tally in tallies for f in tally.failures}
    assert not all(tally.ok for tally in tallies)


def _doubled_sums(tensors: Any, *args: Any, **kwargs: Any) -> Any:
    return tuple(t + t for t in torch._foreach_add(tensors, *args, **kwargs))


def _sums_without_graph(tensors: Any, *args: Any, **kwargs: Any) -> Any:
    return tuple(t.detach() for t in torch._foreach_add(tensors, *args, **kwargs))


LISTS: list[tuple[str, dict[str, Any]]] = [
    ("value", {"_foreach_add": _doubled_sums}),
    ("requires_grad", {"_foreach_add": _sums_without_graph}),
    ("structure", {"_foreach_add": lambda *a, **k: list(torch._foreach_add(*a, **k))}),
    ("returns self", {"_foreach_add_": lambda x, *a, **k: list(torch._foreach_add_(x, *a, **k))}),
    ("missing", {"_foreach_add_": None}),
]


@pytest.mark.parametrize(("check", "changed"), LISTS, ids=[check for check, _ in LISTS])
def test_planted_fault_in_an_op_over_lists_is_caught(check: str, changed: dict[str, Any]) -> None:
    [tally] = run("foreach", "_foreach_add", Bridge(Altered(torch, **changed)))
    assert check in {failure.check for failure in tally.failures}
    assert not tally.ok


# Names


def test_training_layer_is_there_and_tested() -> None:
    spaces = [space for space in names.survey() if space.name in names.TRAINING]
    assert len(spaces) == len(names.TRAINING)
    for space in spaces:
        least = 0.98 * len(space.names)
        assert space.present >= least, (space.name, space.missing)
        assert space.tested >= least, (space.name, space.untested)


# Sizes, and the rest of the machinery


def test_denominators_are_frozen() -> None:
    assert len(samples.load()) == samples.CLASSES == 114
    assert len(optimizers.load()) == optimizers.OPTIMIZERS == 15
    assert sum(len(samples.error_cases(name)) for name in samples.load()) == samples.ERRORS
    assert sum(len(optimizers.error_cases(name)) for name in optimizers.load()) == 124
    lists = json.loads((catalog.DATA / "torch_api.json").read_text())
    assert set(schedulers.ROWS) == set(lists["torch.optim.lr_scheduler"])


def test_every_class_without_samples_has_rows() -> None:
    assert set(own.ROWS) == set(own.wanted())
    modules = [
        name for name in own.wanted() if issubclass(getattr(torch.nn, name), torch.nn.Module)
    ]
    assert len(modules) == own.CLASSES
    assert all(own.ROWS.values())


def test_every_flag_of_an_optimizer_is_run() -> None:
    labels = [setup.label for setup in optimizers.setups("Adam")]
    assert len(labels) == len(set(labels))
    for word in ("foreach", "differentiable", "fused", "groups", "named", "complex", "float64"):
        assert any(word in label for label in labels)
    assert any(setup.sparse for setup in optimizers.setups("SparseAdam"))
    assert all(setup.closure for setup in optimizers.setups("LBFGS"))


def test_classes_are_planned_by_name() -> None:
    assert len(metrics.plan_classes(["modules"])) == 114
    [task] = metrics.plan_classes(["modules"], ["Linear"])
    assert not metrics.needs_op_database([task])
    [first, *_] = metrics.lost(task, "crash", "the worker died")
    assert (first.metric, first.tier, first.ok) == ("M9", "nn", False)


def test_command_writes_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, data = tmp_path / "page.html", tmp_path / "data.json"
    code = cli.main(["schedulers", "StepLR", "--json", str(data), "--html", str(page)])
    assert code == 0
    assert "M10s schedulers" in capsys.readouterr().out
    [entry] = json.loads(data.read_text())["entries"]
    assert entry["checks"]["rates"][0] == entry["checks"]["rates"][1] > 0
    assert "StepLR" in page.read_text()
    with pytest.raises(SystemExit, match="no such class"):
        cli.main(["modules", "Nothing"])


def test_a_run_that_is_stopped_shows_what_it_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(tasks: list[Any], options: Any, tick: Any, done: list[Any]) -> None:
        done += metrics.lost(tasks[0], "crash", "the worker died")
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)

    usual = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(runner, "run", stopped)
    with pytest.raises(SystemExit) as left:
        cli.main(["modules"])
    assert left.value.code == 1
    said = capsys.readouterr().out
    assert "the worker died" in said
    assert "results of 114 tasks" in said
    assert signal.getsignal(signal.SIGTERM) is usual
