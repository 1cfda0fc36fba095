"""Tensors on a mesh: every op gives what it gives without one, and placements go where they should.

On 8 virtual devices of one process (`conftest.py`).
"""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lucerne as torch
from lucerne import nn
from lucerne._src.backends.contract.placement import chunk
from lucerne.nn import functional as F

jax = pytest.importorskip("jax", reason="pip install 'lucerne[xla]': the device 'xla' runs on jax")

from lucerne.distributed.device_mesh import (  # noqa: E402 - after the skip
    DeviceMesh,
    init_device_mesh,
)
from lucerne.distributed.fsdp import fully_shard  # noqa: E402
from lucerne.distributed.tensor import (  # noqa: E402
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
    local_parts,
)
from lucerne.distributed.tensor import rand as mesh_rand  # noqa: E402
from lucerne.distributed.tensor.parallel import (  # noqa: E402
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleOutput,
    parallelize_module,
)
from tests.xla.meshes import MeshTraining, Two, collectives  # noqa: E402

S0, S1, R, P = Shard(0), Shard(1), Replicate(), Partial()
pytestmark = pytest.mark.usefixtures("meshes")


def _mesh(*sizes: int) -> DeviceMesh:
    return init_device_mesh("xla", sizes, mesh_dim_names=("data", "model")[: len(sizes)])


# ---- redistribute --------------------------------------------------------------------------------


def _slices(x: Any, sizes: tuple[int, ...], placements: Any) -> list[Any]:
    """What each device has, as torch cuts: one dimension of the mesh after the other."""
    parts = [x]
    for n, p in zip(sizes, placements, strict=True):
        if not isinstance(p, Shard):
            parts = [t for t in parts for _ in range(n)]
            continue
        cut = [[chunk(t.shape[p.dim], n, k) for k in range(n)] for t in parts]
        parts = [
            t.narrow(p.dim, a, b - a)
            for t, bounds in zip(parts, cut, strict=True)
            for a, b in bounds
        ]
    return parts


def _given(x: Any, mesh: DeviceMesh, placements: Any) -> Any:
    """`x` placed so. Terms are whole numbers of times the value, 1 in all."""
    if P not in placements:
        return distribute_tensor(x, mesh, placements)
    parts = _slices(x, mesh.shape, placements)
    for k, at in enumerate(itertools.product(*(range(n) for n in mesh.shape))):
        for j, n, p in zip(at, mesh.shape, placements, strict=True):
            if p is P:
                parts[k] = parts[k] * (1 if j else 2 - n)
    return DTensor.from_local(parts, mesh, placements)


def _pairs(*sizes: int) -> list[Any]:
    ways = [S0, S1, R]
    return [
        (a, b)
        for a in itertools.product((*ways, P), repeat=len(sizes))
        for b in itertools.product(ways, repeat=len(sizes))
    ]


@pytest.mark.parametrize(
    ("sizes", "shape"),
    [
        ((4,), (8, 4)),
        ((4,), (5, 7)),
        pytest.param((2, 4), (8, 4), marks=pytest.mark.nightly),
        pytest.param((2, 4), (5, 7), marks=pytest.mark.nightly),
        pytest.param((2, 4), (3, 2), marks=pytest.mark.nightly),
    ],
)
def test_redistribute(sizes: tuple[int, ...], shape: tuple[int, ...]) -> None:
    """Between all placements, of sizes that the mesh divides and of those it does not."""
    mesh, x = _mesh(*sizes), torch.arange(float(shape[0] * shape[1])).reshape(shape)
    for a, b in _pairs(*sizes):
        have = _given(x, mesh, a)
        assert have.placements == a
        assert torch.equal(have.full_tensor().cpu(), x), (a, b)
        found = have.redistribute(mesh, b)
        assert found.placements == b
        assert torch.equal(found.cpu(), x), (a, b)
        for part, want in zip(local_parts(found), _slices(x, mesh.shape, b), strict=True):
            assert torch.equal(part.cpu(), want), (a, b)


def test_terms_are_what_was_given() -> None:
    mesh = _mesh(2, 4)
    terms = [torch.full((3,), float(k)) for k in range(8)]
    found = DTensor.from_local(terms, mesh, [P, S0])
    assert found.tolist() == [4.0] * 3 + [6.0] * 3 + [8.0] * 3 + [10.0] * 3
    assert [t.tolist() for t in local_parts(found)] == [t.tolist() for t in terms]
    again = found.redistribute(mesh, [P, S0])
    assert [t.tolist() for t in local_parts(again)] == [t.tolist() for t in terms]
    most = DTensor.from_local(terms[:4], _mesh(4), [Partial("max")])
    assert (most + 1).tolist() == [4.0] * 3


def test_a_part_of_a_mesh_leaves_the_rest() -> None:
    mesh, x = _mesh(2, 4), torch.arange(40.0).reshape(5, 8)
    found = distribute_tensor(x, mesh["data"], [S0])
    assert found.placements == (S0, R)
    assert found.device_mesh == mesh
    found = found.redistribute(mesh["model"], [S0])
    assert found.placements == (S0, S0)
    assert torch.equal(found.cpu(), x)
    assert mesh["model"].mesh.tolist() == [0, 1, 2, 3]
    assert mesh["model"].size() == 4
    assert mesh["data"].mesh.tolist() == [0, 4]
    assert mesh.get_coordinate() == [0, 0]
    assert found.redistribute(mesh["data"], [R]).placements == (R, S0)


# ---- ops -----------------------------------------------------------------------------------------

OPS: dict[str, Callable[[Any], Any]] = {
    "pointwise": lambda x: (x * 2 + 1).tanh(),
    "reduction": lambda x: x.sum(1) + x.mean(),
    "product": lambda x: x @ x.t(),
    "softmax": lambda x: F.softmax(x, -1),
    "sort": lambda x: x.sort(1).values,
    "view": lambda x: x.t().reshape(-1)[3:20],
    "gather": lambda x: x[torch.tensor([2, 0], device=x.device)],
    "cumsum": lambda x: x.cumsum(0),
    "cat": lambda x: torch.cat([x, x[1:3]], 0),
}
PLACED = [(S0,), (S1,), (R,), (P,)]


@pytest.mark.parametrize("shape", [(4, 8), (5, 7)])
def test_ops_on_placed_tensors(shape: tuple[int, int]) -> None:
    """One program of all of them; the same, op by op, is nightly."""
    mesh = _mesh(4)
    x = torch.linspace(-1, 1, shape[0] * shape[1]).reshape(shape)
    x = (x * 64).round() / 64  # terms add up without rounding
    f = torch.compile(lambda x: [op(x) for op in OPS.values()], fullgraph=True)
    want = f(x.to("xla"))
    for placements in PLACED:
        for name, a, b in zip(OPS, f(_given(x, mesh, placements)), want, strict=True):
            torch.testing.assert_close(a.cpu(), b.cpu(), msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.nightly
@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("placements", PLACED, ids=str)
def test_ops_on_placed_tensors_eagerly(name: str, placements: Any) -> None:
    for shape in ((4, 8), (5, 7)):
        x = (torch.linspace(-1, 1, shape[0] * shape[1]).reshape(shape) * 64).round() / 64
        found = OPS[name](_given(x, _mesh(4), placements))
        torch.testing.assert_close(found.cpu(), OPS[name](x.to("xla")).cpu())
        assert isinstance(found, DTensor)


def test_what_is_made_of_a_placed_tensor() -> None:
    """Gradients, `*_like`, writes in place and bytes from the host: all lie as the tensor does."""
    mesh, x = _mesh(2, 4), torch.arange(35.0).reshape(5, 7)
    t = distribute_tensor(x, mesh, [S0, S1]).requires_grad_()
    assert isinstance(t, DTensor)
    assert t.is_leaf
    assert t.placements == (S0, S1)
    assert not isinstance(x, DTensor)
    assert not hasattr(x, "placements")
    (t * t).sum().backward()
    assert t.grad.placements == (S0, S1)
    assert torch.equal(t.grad.cpu(), 2 * x)
    (t * 3).sum().backward()
    assert t.grad.placements == (S0, S1)
    assert torch.equal(t.grad.cpu(), 2 * x + 3)
    for make in (torch.zeros_like, torch.ones_like, torch.empty_like, torch.rand_like):
        assert make(t).placements == (S0, S1), make
    with torch.no_grad():
        t.add_(1)
        assert t.placements == (S0, S1)
        assert torch.equal(t.detach().cpu(), x + 1)
        t[1:3] = 0
        assert t.placements == (S0, S1)
        assert t[1:3].abs().sum().item() == 0
        t.copy_(x)
        assert t.placements == (S0, S1)
        assert torch.equal(t.detach().cpu(), x)
    assert nn.Parameter(t).placements == (S0, S1)
    local = t.to_local()
    assert torch.equal(local.cpu(), x[:3, :2])
    assert not isinstance(local, DTensor)
    local.sum().backward()
    assert t.grad[0, 0].item() == 2 * x[0, 0].item() + 4


def test_numbers_are_the_same_on_a_mesh() -> None:
    torch.manual_seed(3)
    want = torch.rand(5, 8)
    torch.manual_seed(3)
    found = mesh_rand(5, 8, device_mesh=_mesh(4), placements=[S0])
    assert torch.equal(found.cpu(), want)
    f = torch.compile(lambda x: (F.dropout(x, 0.5), torch.rand_like(x)), fullgraph=True)
    torch.manual_seed(4)
    alone = [t.cpu() for t in f(want.to("xla"))]
    torch.manual_seed(4)
    assert all(torch.equal(a.cpu(), b) for a, b in zip(f(found), alone, strict=True))


def test_captured_redistribute() -> None:
    mesh, x = _mesh(4), torch.arange(35.0).reshape(5, 7)
    f = torch.compile(lambda t: (t * 2).redistribute(mesh, [S1]), fullgraph=True)
    found = f(distribute_tensor(x, mesh, [S0]))
    assert found.placements == (S1,)
    assert torch.equal(found.cpu(), 2 * x)
    g = torch.compile(lambda t: (t * 2).full_tensor(), fullgraph=True)
    assert torch.equal(g(distribute_tensor(x, mesh, [S0])).cpu(), 2 * x)


# ---- modules -------------------------------------------------------------------------------------

COUNTS = {
    ("two layers", "DDP"): {"all-gather": 2, "all-reduce": 5},
    ("two layers", "FSDP"): {"all-gather": 2, "all-reduce": 3},
    ("two layers", "HSDP"): {"all-gather": 2, "all-reduce": 3},
    ("two layers", "TP"): {"all-reduce": 1},
    ("two layers", "FSDP x TP"): {"all-gather": 2, "all-reduce": 4},
    ("uneven", "FSDP"): {"all-gather": 2, "all-reduce": 3},
    ("uneven", "FSDP x TP"): {"all-gather": 2, "all-reduce": 4},
    ("GPT", "DDP"): {"all-gather": 2, "all-reduce": 5},
    ("GPT", "FSDP"): {"all-gather": 57, "all-reduce": 5},
    ("GPT", "HSDP"): {"all-gather": 57, "all-reduce": 7},
    ("GPT", "TP"): {"all-reduce": 8},
    ("GPT", "SP"): {"all-gather": 12, "all-reduce": 9},
    ("GPT", "FSDP x TP"): {"all-gather": 56, "all-reduce": 14, "collective-permute": 7},
    ("GPT", "TP, loss"): {"all-reduce": 11},
    ("GPT", "CP, ring"): {"all-gather": 6, "all-reduce": 3, "collective-permute": 28},
    ("GPT", "CP, gathered"): {"all-gather": 16, "all-reduce": 7},
    ("GPT", "FSDP x CP"): {"all-gather": 62, "all-reduce": 9, "collective-permute": 35},
    ("mixture", "EP"): {"all-gather": 5, "all-reduce": 6, "all-to-all": 7},
    ("mixture", "FSDP x EP"): {
        "all-gather": 17,
        "all-reduce": 8,
        "all-to-all": 6,
        "collective-permute": 3,
    },
    ("GPT, fused heads", "TP"): {"all-reduce": 8, "all-to-all": 8, "collective-permute": 14},
}
"""How often each collective stands in a step's program (XLA for CPUs, which has no reduce-scatter:
an all-reduce and a slice stand for one). With a ring 2 layers take 14 turns each, and no value
of a layer is gathered; with the vocabulary cut no logits are. In the last row heads are cut across
a weight that holds queries, keys and values: right, but values are moved, which the others do not
need."""
QUICK = [("two layers", "DDP"), ("two layers", "FSDP"), ("two layers", "FSDP x TP"),
         ("uneven", "FSDP")]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "form"),
    [pytest.param(*k, marks=[] if k in QUICK else [pytest.mark.nightly]) for k in COUNTS],
)
def test_a_step_trains_as_on_one_device(name: str, form: str) -> None:
    here, there = MeshTraining(name, "one"), MeshTraining(name, form)
    steps = 3 if (name, form) in QUICK else 10
    assert there.losses(steps) == pytest.approx(here.losses(steps), abs=2e-6)
    if jax.__version__.startswith("0.10."):  # (XLA's choices are those of a version)
        assert there.collectives() == COUNTS[name, form]
    for p in there.model.parameters():
        assert p.grad.placements == p.placements
        assert there.optimizer.state[p]["exp_avg"].placements == p.placements


EAGERLY = ("DDP", "FSDP", "HSDP", "TP", "FSDP x TP", "TP x FSDP by layers")


@pytest.mark.nightly
@pytest.mark.parametrize("form", EAGERLY)
def test_a_step_trains_eagerly(form: str) -> None:
    here, there = MeshTraining("two layers", "one"), MeshTraining("two layers", form, False)
    assert there.losses(3) == pytest.approx(here.losses(3), abs=2e-6)


@pytest.mark.nightly
def test_the_order_of_wrappers_does_not_matter() -> None:
    found = [MeshTraining("GPT", form) for form in ("FSDP x TP", "TP x FSDP by layers")]
    assert found[0].losses(3) == found[1].losses(3)
    assert found[0].collectives() == found[1].collectives()


class Doubled(nn.Module):
    """A class of a user's, with layers of such a class inside."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(Two() for _ in range(2))

    def forward(self, x: Any) -> Any:
        return sum(part(x) for part in self.parts)


def test_layers_of_a_users_class_are_cut_one_by_one() -> None:
    """In one graph all the same."""
    model, x = Doubled().to("xla"), torch.randn(16, 8).to("xla")
    wanted = model(x)
    for part in (*model.parts, model):
        fully_shard(part, mesh=_mesh(8))
    found = torch.compile(model, fullgraph=True)(x)
    torch.testing.assert_close(found.full_tensor(), wanted)


def test_parameters_stay_the_objects_they_are() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
    params = list(model.parameters())
    fully_shard(model, mesh=_mesh(8))
    assert all(a is b for a, b in zip(params, model.parameters(), strict=True))
    assert all(p.placements == (S0,) and p.device.type == "xla" for p in params)
    assert type(model).__name__ == "FSDPSequential"
    assert isinstance(model, nn.Sequential)
    state = {k: v.cpu() + 1 for k, v in model.state_dict().items()}
    model.load_state_dict(state)
    assert all(p.placements == (S0,) for p in params)
    assert torch.equal(params[0].detach().cpu(), state["0.weight"])
    model.unshard()
    assert params[0].placements == (R,)
    model.reshard()
    assert params[0].placements == (S0,)
    assert torch.equal(params[0].detach().cpu(), state["0.weight"])


def test_a_border_is_a_placement() -> None:
    seen = []
    mesh, x = _mesh(4), torch.randn(4, 8)
    watch = nn.Identity()
    watch.register_forward_hook(
        lambda m, args, out: seen.append(getattr(args[0], "placements", None))
    )
    styles: list[tuple[ParallelStyle, Any]] = [
        (PrepareModuleInput(input_layouts=(R,), desired_input_layouts=(S0,)), nn.Sequential(watch)),
        (
            PrepareModuleOutput(output_layouts=(R,), desired_output_layouts=(S1,)),
            nn.Sequential(watch),
        ),
        (ColwiseParallel(), nn.Linear(8, 8)),
    ]
    found = [parallelize_module(m, mesh, style)(x.to("xla")).placements for style, m in styles]
    assert found == [(S0,), (S1,), (S1,)]
    assert seen[0] == (S0,)
    placed = distribute_module(
        nn.Linear(8, 4), mesh, input_fn=lambda m, args, mesh: distribute_tensor(*args, mesh, [S0])
    )
    assert placed.weight.placements == (R,)
    assert placed(x).placements == (S0,)


def test_cells_of_a_mesh_are_donated() -> None:
    found = MeshTraining("two layers", "FSDP")
    found.losses(2)
    first = [p._storage.buffer.array for p in found.model.parameters()]
    found.losses(1)
    assert all(a.is_deleted() for a in first), "a parameter was not donated"
    assert collectives(found.step), "one program, and it sends something"


ERRORS: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: init_device_mesh("cpu", (2,)), NotImplementedError, "'cpu' has no meshes"),
    (lambda: init_device_mesh("xla", (3, 4)), RuntimeError, "names device 8, but 'xla' has 8"),
    (lambda: DeviceMesh("xla", [0, 0]), RuntimeError, "stands twice"),
    (lambda: init_device_mesh("xla", (2,), mesh_dim_names=("a", "b")), RuntimeError, "same length"),
    (lambda: _mesh(2, 4)["other"], KeyError, "Invalid mesh_dim_name"),
    (lambda: _mesh(2, 4).get_group("data"), NotImplementedError, "driven by one program"),
    (
        lambda: distribute_tensor(torch.ones(4), _mesh(4), [P]),
        RuntimeError,
        "unsupported placements",
    ),
    (lambda: distribute_tensor(torch.ones(4), _mesh(4), [S1]), IndexError, "has 1 dimensions"),
    (lambda: distribute_tensor(torch.ones(4), _mesh(4), [S0, S0]), ValueError, "same length"),
    (lambda: distribute_tensor(torch.ones(4)), RuntimeError, "No device mesh is currently active"),
    (lambda: DTensor.from_local(torch.ones(4), _mesh(4), [S0]), NotImplementedError, "it gave 1"),
    (lambda: DTensor(torch.ones(4)), RuntimeError, "use distribute_tensor"),
    (
        lambda: distribute_tensor(torch.ones(4), _mesh(4)).redistribute(placements=[P]),
        RuntimeError,
        "redistributing to Partial is for internal use only",
    ),
    (
        lambda: fully_shard(nn.Linear(2, 2), mesh=_mesh(4), reshard_after_forward=False),
        NotImplementedError,
        "reshard_after_forward=False",
    ),
    (
        lambda: parallelize_module(nn.Linear(2, 2), _mesh(2, 4), ColwiseParallel()),
        ValueError,
        "only accepts a 1D DeviceMesh",
    ),
    (
        lambda: parallelize_module(nn.LayerNorm(2), _mesh(4), ColwiseParallel()),
        NotImplementedError,
        "only support nn.Linear and nn.Embedding",
    ),
]


@pytest.mark.parametrize(("run", "kind", "text"), ERRORS, ids=[row[2] for row in ERRORS])
def test_what_is_refused(run: Callable[[], Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text.replace("(", r"\(")):
        run()


@pytest.mark.nightly
def test_the_guide_goes_from_one_device_to_a_mesh_by_a_flag(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/guide/mesh.md").read_text()
    (code,) = re.findall(r"^```py\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    script = tmp_path / "train.py"
    script.write_text(code)
    found = []
    for flags in ([], ["--mesh", "data=2,model=4"], ["--mesh", "data=8"]):
        ran = subprocess.run(
            [sys.executable, str(script), *flags], capture_output=True, text=True, check=True
        )
        found.append([float(x) for x in ran.stdout.split()])
    assert len(found[0]) == 5
    assert found[1] == pytest.approx(found[0], abs=1.1e-5)  # (five digits are printed)
    assert found[2] == pytest.approx(found[0], abs=1.1e-5)
