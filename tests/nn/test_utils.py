"""`nn.utils` and `nn.parallel` against torch: clipping, parametrisations, pruning, fusion ..."""

from __future__ import annotations

import copy
import pickle
from importlib import import_module
from typing import Any

import pytest

import lucerne
from tests.nn.scenes import Notes, Scene, assert_same

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def of(torch: Any, name: str) -> Any:
    return import_module(f"{torch.__name__}.nn.utils.{name}")


def clipping(torch: Any, note: Notes) -> None:
    u = torch.nn.utils

    def params() -> Any:
        made = [torch.nn.Parameter(torch.arange(3.0)), torch.nn.Parameter(torch.ones(2, 2))]
        made[0].grad, made[1].grad = torch.tensor([3.0, -4.0, 0.0]), torch.full((2, 2), 6.0)
        return [*made, torch.nn.Parameter(torch.ones(1))]

    for norm_type in (2, 1.0, float("inf"), "inf", 3):
        for limit in (1.0, 100, 0.5):
            ps = params()
            note.of(lambda ps=ps, n=norm_type, m=limit: u.clip_grad_norm_(ps, m, n))
            note([p.grad for p in ps])
    ps = params()
    note(u.clip_grad_norm_((p for p in ps), 1.0), ps[0].grad)
    note(u.clip_grad_norm_(ps[1], 1.0), u.clip_grad_norm(ps, 1.0), u.clip_grad_norm_([], 1.0))
    note(u.clip_grad_norm_((p for p in []), 1.0))
    ps = params()
    u.clip_grad_value_(ps, 3.5)
    u.clip_grad_value_(ps[0], 1)
    note([p.grad for p in ps])
    bad = params()
    bad[0].grad[0] = float("nan")
    note.of(
        lambda: u.clip_grad_norm_(bad, 1.0, error_if_nonfinite=True), lambda: u.get_total_norm([])
    )
    ps = params()
    total = u.get_total_norm([p.grad for p in ps if p.grad is not None])
    u.clip_grads_with_norm_(ps, 2.0, total)
    note(total, [p.grad for p in ps])


def vectors(torch: Any, note: Notes) -> None:
    u = torch.nn.utils
    m = torch.nn.Linear(2, 3)
    with torch.no_grad():
        m.weight.copy_(torch.arange(6.0).view(3, 2))
    vec = u.parameters_to_vector(m.parameters())
    note(vec.shape, vec.requires_grad)
    new = torch.arange(9.0)
    u.vector_to_parameters(new, m.parameters())
    note(m.weight, m.bias)
    new.add_(1)
    note(m.weight)
    note.of(lambda: u.vector_to_parameters([1.0], m.parameters()))


def parametrized(torch: Any, note: Notes) -> None:
    nn, P = torch.nn, of(torch, "parametrize")

    class Sym(nn.Module):
        def forward(self, x: Any) -> Any:
            return x.triu() + x.triu(1).T

    class Twice(nn.Module):
        def forward(self, x: Any) -> Any:
            return x * 2

        def right_inverse(self, x: Any) -> Any:
            return x / 2

    class Sum(nn.Module):
        def forward(self, a: Any, b: Any) -> Any:
            return a + b

        def right_inverse(self, x: Any) -> Any:
            return x / 4, x * 3 / 4

    def layer() -> Any:
        made = nn.Linear(2, 2)
        with torch.no_grad():
            made.weight.copy_(torch.arange(4.0).view(2, 2))
            made.bias.zero_()
        return made

    m = layer()
    weight = m.weight
    note(P.register_parametrization(m, "weight", Sym()) is m, m, m.weight, m(torch.ones(2)))
    note(type(m).__name__, P.type_before_parametrizations(m).__name__, P.is_parametrized(m))
    note(P.is_parametrized(m, "bias"), P.is_parametrized(nn.Linear(1, 1)), list(m.state_dict()))
    note(m.parametrizations.weight.original is weight, [n for n, _ in m.named_parameters()])
    m.weight.sum().backward()
    note(weight.grad)
    P.register_parametrization(m, "weight", Twice())
    note(m.weight, m)
    note.of(lambda: setattr(m, "weight", torch.ones(2, 2)), lambda: pickle.dumps(m))
    twin = copy.deepcopy(m)
    note(twin.weight, type(twin).__name__, twin.parametrizations.weight.original is weight)
    with P.cached():
        note(m.weight is m.weight)
    note(m.weight is m.weight)
    note(
        P.remove_parametrizations(m, "weight", leave_parametrized=True), m.weight is weight, weight
    )
    m = layer()
    P.register_parametrization(m, "weight", Twice())
    note(m.parametrizations.weight.original, m.weight)
    m.weight = torch.full((2, 2), 10.0)
    note(m.parametrizations.weight.original, m.weight)
    other = layer()
    P.transfer_parametrizations_and_params(m, other)
    note(
        other,
        other.weight,
        other.parametrizations.weight.original is m.parametrizations.weight.original,
    )
    P.remove_parametrizations(m, "weight", leave_parametrized=False)
    note(m.weight, m)
    m = layer()
    P.register_parametrization(m, "weight", Sum())
    note(m.weight, list(m.state_dict()), m.parametrizations.weight.ntensors)
    m.weight = torch.ones(2, 2)
    note(m.weight, m.state_dict())
    note.of(lambda: P.remove_parametrizations(m, "weight", leave_parametrized=False))
    note(P.remove_parametrizations(m, "weight"), m.weight, list(m.state_dict()))
    bn = nn.BatchNorm1d(2)
    P.register_parametrization(bn, "running_mean", Twice())
    note(bn.running_mean, list(bn.state_dict()), [n for n, _ in bn.named_buffers()])
    m = layer()
    m.eval()
    P.register_parametrization(m, "weight", Twice())
    P.register_parametrization(m, "bias", Twice())
    note(m.parametrizations.weight[0].training, m)
    P.remove_parametrizations(m, "weight")
    note(m)


def bad_parametrizations(torch: Any, note: Notes) -> None:
    nn, P = torch.nn, of(torch, "parametrize")

    def make(forward: Any, inverse: Any = None) -> Any:
        members = {"forward": lambda self, *x: forward(*x)}
        if inverse is not None:
            members["right_inverse"] = lambda self, x: inverse(x)
        return type("Made", (nn.Module,), members)()

    for forward, inverse in (
        (lambda x: x[:1], None), (lambda x: x.double(), None), (lambda x: 3, None),
        (lambda x: x, lambda x: x.double()), (lambda x: x, lambda x: 3),
        (lambda x: x, lambda x: x[:1]), (lambda a, b: a + b, lambda x: (x, 3)),
        (lambda a, b: a, lambda x: (x, x)),
    ):  # fmt: skip
        for unsafe in (False, True):
            m = nn.Linear(3, 3)
            note.of(lambda f=forward, i=inverse, u=unsafe, m=m: str(
                P.register_parametrization(m, "weight", make(f, i), unsafe=u)
            ))  # fmt: skip
        m = nn.Linear(3, 3)
        P.register_parametrization(m, "weight", make(lambda x: x * 1, lambda x: x))
        note.of(lambda f=forward, i=inverse, m=m: str(
            P.register_parametrization(m, "weight", make(f, i))
        ))  # fmt: skip
    m = nn.Linear(3, 3)
    note.of(
        lambda: P.register_parametrization(m, "nope", make(lambda x: x)),
        lambda: P.remove_parametrizations(m, "weight"),
        lambda: P.ParametrizationList([], m.weight),
    )
    P.register_parametrization(m, "weight", make(lambda x: x * 1, lambda x: x))
    note.of(
        lambda: setattr(m, "weight", torch.ones(3, 3).double()),
        lambda: setattr(m, "weight", 3),
        lambda: setattr(m, "weight", nn.Parameter(torch.ones(3, 3))),
        lambda: m.parametrizations.nope,
    )


def ready_made(torch: Any, note: Notes) -> None:
    nn, P = torch.nn, of(torch, "parametrizations")
    for n, k in ((3, 3), (4, 2), (2, 4)):
        for kind in ("matrix_exp", "cayley", "householder", None):
            for trivial in (True, False):
                m = nn.Linear(k, n)
                with torch.no_grad():
                    m.weight.copy_(torch.arange(float(n * k)).view(n, k).sin())
                note.of(lambda m=m, t=trivial, o=kind: str(
                    P.orthogonal(m, orthogonal_map=o, use_trivialization=t)
                ))  # fmt: skip
                w = m.weight.detach()
                q = w @ w.T if n <= k else w.T @ w
                note(torch.allclose(q, torch.eye(min(n, k)), atol=1e-5), list(m.state_dict()))
                if trivial and n == k:
                    note(w)
    m = nn.Linear(3, 2)
    note.of(
        lambda: P.orthogonal(m, "bias"), lambda: P.orthogonal(m, "nope"),
        lambda: P.orthogonal(m, orthogonal_map="x"), lambda: P.spectral_norm(m, "nope"),
        lambda: P.spectral_norm(m, n_power_iterations=0), lambda: P.spectral_norm(m, dim=5),
    )  # fmt: skip
    for dim in (0, 1, None):
        m = nn.Conv2d(2, 3, 2)
        with torch.no_grad():
            m.weight.copy_(torch.arange(24.0).view(3, 2, 2, 2).cos())
        P.weight_norm(m, dim=dim)
        note(
            m.weight, m.state_dict()["parametrizations.weight.original0"], m.weight.sum().backward()
        )
        note(m.parametrizations.weight.original0.grad, m.parametrizations.weight.original1.grad)
    old = {"weight_g": torch.ones(3, 1), "weight_v": torch.ones(3, 2), "bias": torch.zeros(3)}
    m = P.weight_norm(nn.Linear(2, 3))
    note(m.load_state_dict(old), m.weight)
    for module in (nn.Linear(3, 4), nn.Conv1d(2, 3, 2), nn.ConvTranspose1d(2, 3, 2)):
        with torch.no_grad():
            module.weight.copy_(
                torch.arange(float(module.weight.numel())).view_as(module.weight).cos()
            )
        P.spectral_norm(module, n_power_iterations=10)
        for _ in range(5):
            module.weight  # noqa: B018 - each access in training is a step of the iteration
        note(module.weight, [n for n, _ in module.named_buffers()])
    note(P.spectral_norm(nn.Linear(2, 3), "bias").bias.norm())


def hook_norms(torch: Any, note: Notes) -> None:
    nn, u = torch.nn, torch.nn.utils
    m = nn.Linear(2, 3)
    with torch.no_grad():
        m.weight.copy_(torch.arange(6.0).view(3, 2) + 1)
        m.bias.zero_()
    x = torch.ones(2)
    u.weight_norm(m)
    note(list(m.state_dict()), m.weight, m(x), [n for n, _ in m.named_parameters()])
    with torch.no_grad():
        m.weight_g.mul_(2)
    note(m(x), m.weight)
    note.of(lambda: u.weight_norm(m), lambda: u.remove_weight_norm(m, "bias"))
    note(u.remove_weight_norm(m), list(m.state_dict()), m.weight, len(m._forward_pre_hooks))
    u.spectral_norm(m, n_power_iterations=20)
    note(list(m.state_dict()), m(x), m.state_dict()._metadata)
    state = m.state_dict()
    note.of(lambda: u.spectral_norm(m), lambda: u.remove_spectral_norm(m, "bias"))
    other = u.spectral_norm(nn.Linear(2, 3))
    note(other.load_state_dict(state), other.eval()(x))
    note(u.remove_spectral_norm(m), list(m.state_dict()), m.weight, len(m._forward_pre_hooks))
    note.of(
        lambda: u.spectral_norm(m, n_power_iterations=0), lambda: u.spectral_norm(m, "nope"),
        lambda: u.weight_norm(nn.LazyLinear(2)), lambda: u.spectral_norm(nn.LazyLinear(2)),
    )  # fmt: skip


def pruning(torch: Any, note: Notes) -> None:
    nn, P = torch.nn, of(torch, "prune")

    def layer() -> Any:
        made = nn.Linear(4, 3)
        with torch.no_grad():
            made.weight.copy_((torch.arange(12.0).view(3, 4) * 7 % 12) - 5)
            made.bias.copy_(torch.tensor([1.0, 2.0, 3.0]))
        return made

    m = layer()
    original = m.weight
    note(P.l1_unstructured(m, "weight", 3) is m, m.weight, m.weight_mask, m.weight_orig is original)
    note(
        list(m.state_dict()), [n for n, _ in m.named_parameters()], P.is_pruned(m), m(torch.ones(4))
    )
    m.weight.sum().backward()
    note(m.weight_orig.grad)
    P.ln_structured(m, "weight", 1, n=2, dim=0)
    note(
        m.weight_mask,
        len(m._forward_pre_hooks),
        [type(h).__name__ for h in m._forward_pre_hooks.values()],
    )
    container = next(iter(m._forward_pre_hooks.values()))
    note(len(container), [type(h).__name__ for h in container], container._tensor_name)
    note.of(lambda: container.add_pruning_method(3))
    P.l1_unstructured(m, "weight", 0.5)
    P.custom_from_mask(m, "weight", torch.eye(3, 4))
    note(m.weight_mask, m(torch.ones(4)))
    twin = nn.Sequential(P.identity(layer(), "bias"))
    note(P.is_pruned(twin), twin[0].bias_mask)
    note(
        P.remove(m, "weight"), m.weight, m.weight is original, list(m.state_dict()), P.is_pruned(m)
    )
    m = layer()
    P.l1_unstructured(m, "weight", 0.25, importance_scores=torch.arange(12.0).view(3, 4))
    note(m.weight_mask)
    ms = [layer(), layer()]
    with torch.no_grad():
        ms[1].weight.mul_(0.1)
    P.global_unstructured([(a, "weight") for a in ms], P.L1Unstructured, amount=10)
    note(ms[0].weight_mask, ms[1].weight_mask)
    P.global_unstructured([(ms[0], "weight")], P.L1Unstructured, amount=0.5)
    note(ms[0].weight_mask)
    note(P.L1Unstructured(0.5).prune(torch.tensor([1.0, -3.0, 2.0, 4.0])))
    m = layer()
    for bad in (
        lambda: P.l1_unstructured(m, "weight", -1), lambda: P.l1_unstructured(m, "weight", 1.5),
        lambda: P.l1_unstructured(m, "weight", "a"), lambda: P.l1_unstructured(m, "weight", 100),
        lambda: P.ln_structured(m, "bias", 1, 2, 0), lambda: P.ln_structured(m, "weight", 1, 2, 5),
        lambda: P.remove(m, "weight"), lambda: P.random_structured(m, "bias", 1, 0),
        lambda: P.l1_unstructured(m, "weight", 3, importance_scores=torch.ones(2)),
        lambda: P.global_unstructured(3, P.L1Unstructured, amount=1),
        lambda: P.global_unstructured([(m, "weight")], P.LnStructured, amount=1, n=2),
        lambda: P.global_unstructured([(m, "weight")], P.L1Unstructured, 3, amount=1),
        lambda: P.BasePruningMethod(),
        lambda: P.L1Unstructured(0.2).prune(torch.ones(2), importance_scores=torch.ones(3)),
        lambda: P.CustomFromMask(torch.ones(2)).prune(torch.ones(3)),
    ):  # fmt: skip
        note.of(bad)
        note(list(m.state_dict()))
    for drawn in (
        P.random_unstructured(layer(), "weight", 5), P.random_structured(layer(), "weight", 1, 0),
        P.random_structured(layer(), "weight", 0.5, 1), P.random_unstructured(layer(), "weight", 0),
    ):  # fmt: skip
        note(int(drawn.weight_mask.sum()), drawn.weight_mask)


def stateless(torch: Any, note: Notes) -> None:
    nn, S = torch.nn, of(torch, "stateless")
    m = nn.Sequential(nn.Linear(2, 2, bias=False), nn.BatchNorm1d(2))
    weight = m[0].weight
    x = torch.tensor([[1.0, 2.0], [3.0, 5.0]])
    given = {"0.weight": torch.eye(2), "1.running_mean": torch.zeros(2)}
    note(S.functional_call(m, given, x), given, m[0].weight is weight, m[1].running_mean)
    w = torch.eye(2, requires_grad=True)
    S.functional_call(m, {"0.weight": w}, (x,))[0].sum().backward()
    note(w.grad.shape, weight.grad)
    tied = nn.ModuleList([nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)])
    tied[1].weight = tied[0].weight
    tied.forward = lambda x: tied[0](x) + 10 * tied[1](x)
    one, two, x = torch.ones(1, 1), torch.full((1, 1), 2.0), torch.ones(1)
    note.of(
        lambda: S.functional_call(tied, {"0.weight": two}, x),
        lambda: S.functional_call(tied, {"0.weight": two}, x, tie_weights=False).shape,
        lambda: S.functional_call(tied, {"0.weight": one, "1.weight": one}, x),
        lambda: S.functional_call(tied, {"0.weight": one}, x, strict=True),
        lambda: S.functional_call(m, {"0.weight": one}, x, strict=True),
        lambda: S.functional_call(m, {"nope": one}, x, strict=True),
        lambda: S.functional_call(m, {"nope": one}, x),
        lambda: S.functional_call(m, {"0.nope": one}, x),
    )


def fusing(torch: Any, note: Notes) -> None:
    nn, u = torch.nn, torch.nn.utils
    for layer, norm, x in (
        (nn.Conv2d(2, 3, 2), nn.BatchNorm2d(3), torch.ones(1, 2, 4, 4)),
        (nn.Conv1d(2, 3, 2, bias=False), nn.BatchNorm1d(3, affine=False), torch.ones(1, 2, 4)),
        (nn.ConvTranspose2d(2, 3, 2), nn.BatchNorm2d(3), torch.ones(1, 2, 4, 4)),
        (nn.Linear(4, 3), nn.BatchNorm1d(3), torch.ones(2, 4)),
        (nn.Linear(4, 3, bias=False), nn.BatchNorm1d(3), torch.ones(2, 4)),
    ):  # fmt: skip
        with torch.no_grad():
            norm.running_mean.copy_(torch.tensor([1.0, 2.0, 3.0]))
            norm.running_var.copy_(torch.tensor([1.0, 4.0, 9.0]))
        layer.eval(), norm.eval()
        if isinstance(layer, nn.Linear):
            fused = u.fuse_linear_bn_eval(layer, norm)
        else:
            fused = u.fuse_conv_bn_eval(layer, norm, isinstance(layer, nn.ConvTranspose2d))
        same = torch.allclose(fused(x), norm(layer(x)), atol=1e-5)
        note(
            fused,
            same,
            type(fused.weight).__name__,
            fused.bias.requires_grad,
            list(fused.state_dict()),
        )
    note.of(lambda: u.fuse_conv_bn_eval(nn.Conv1d(1, 1, 1), nn.BatchNorm1d(1)))
    note.of(lambda: u.fuse_linear_bn_eval(nn.Linear(1, 3).eval(), nn.BatchNorm1d(2).eval()))
    m = nn.Sequential(nn.Conv2d(2, 3, 2), nn.Conv3d(2, 3, 2))
    u.convert_conv2d_weight_memory_format(m, torch.channels_last)
    u.convert_conv3d_weight_memory_format(m, torch.channels_last_3d)
    note(m[0].weight.stride(), m[1].weight.stride())
    note(
        u.skip_init(nn.Linear, 2, 3), u.skip_init(nn.Linear, 2, 3, dtype=torch.float64).weight.dtype
    )
    note.of(lambda: u.skip_init(nn.ReLU), lambda: u.skip_init(int))


def conv_gradients(torch: Any, note: Notes) -> None:
    grad = import_module(f"{torch.__name__}.nn.grad")
    x, w = torch.arange(24.0).view(2, 2, 6).sin(), torch.arange(12.0).view(2, 2, 3).cos()
    go = torch.ones(2, 2, 3)
    note(grad.conv1d_input((2, 2, 6), w, go, stride=2, padding=1))
    note(grad.conv1d_weight(x, (2, 2, 3), go, stride=2, padding=1))
    image, kernel = x.view(2, 2, 2, 3), w.view(2, 2, 1, 3)
    note(grad.conv2d_input(image.shape, kernel, torch.ones(2, 2, 2, 1)))
    note(grad.conv2d_weight(image, kernel.shape, torch.ones(2, 2, 2, 1)))
    volume, kernel = x.view(2, 2, 1, 2, 3), w.view(2, 2, 1, 1, 3)
    note(grad.conv3d_input(volume.shape, kernel, torch.ones(2, 2, 1, 2, 1)))
    note(grad.conv3d_weight(volume, kernel.shape, torch.ones(2, 2, 1, 2, 1)))
    reduction = import_module(f"{torch.__name__}.nn._reduction")
    note.of(*(lambda r=r: reduction.get_enum(r) for r in ("none", "mean", "sum", "x")))
    for flags in ((None, None), (True, False), (False, True), (False, None)):
        note(reduction.legacy_get_string(*flags), reduction.legacy_get_enum(*flags))


def parallel(torch: Any, note: Notes) -> None:
    nn = torch.nn
    m = nn.DataParallel(nn.Linear(2, 1))
    note(m, list(m.state_dict()), m(torch.ones(3, 2)).shape, m.device_ids)


SCENES: list[Scene] = [
    clipping, vectors, parametrized, bad_parametrizations, ready_made, hook_norms, pruning,
    stateless, fusing, conv_gradients, parallel,
]  # fmt: skip


@pytest.mark.parametrize("scene", SCENES, ids=lambda s: s.__name__)
def test_scene(scene: Scene) -> None:
    assert_same(scene, torch)


def test_a_batch_split_over_host_devices() -> None:
    nn = lucerne.nn
    m = nn.Linear(2, 1)
    x = lucerne.ones(5, 2)
    found = nn.parallel.data_parallel(m, x, ["cpu", "cpu"])
    assert lucerne.equal(found, m(x))
    found.sum().backward()
    assert m.bias.grad.item() == 5
    parts = nn.parallel.scatter({"a": [x], "b": 3}, ["cpu", "cpu"])
    assert [p["a"][0].shape[0] for p in parts] == [3, 2]
    whole = nn.parallel.gather([(p["a"][0], p["a"][0].sum()) for p in parts], "cpu")
    assert whole[0].shape == (5, 2)
    assert whole[1].shape == (2,)


def test_distributed_says_so() -> None:
    with pytest.raises(ValueError, match="call init_process_group"):
        lucerne.nn.parallel.DistributedDataParallel(lucerne.nn.Linear(1, 1))
