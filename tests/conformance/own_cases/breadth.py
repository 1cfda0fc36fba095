"""Corners of the ops of T2, fused optimizer steps and gradients that op_db leaves out."""

from typing import Any

from tests.conformance.own_cases.tools import Rows, counted, numbers, raises


def _grads(t: Any, y: Any, *ins: Any) -> Any:
    """The result, and the derivatives of a weighted sum of it."""
    weights = counted(t, *y.shape) / max(y.numel(), 1) - 0.3
    return y.detach(), t.autograd.grad((y * weights).sum(), ins)


def resized_gradients(t: Any) -> Any:
    """Up and down, with either layout of memory."""
    found = []
    for mode in ("nearest", "bilinear", "bicubic", "area", "nearest-exact"):
        for scale in (0.4, 1.3, 2.5):
            for layout in (t.contiguous_format, t.channels_last):
                x = numbers(t, 2, 3, 7, 5).contiguous(memory_format=layout).requires_grad_()
                y = t.nn.functional.interpolate(x, scale_factor=scale, mode=mode)
                found.append(_grads(t, y, x))
    return found


def resized_ends(t: Any) -> Any:
    """A derivative that is not finite stays where it belongs."""
    x = counted(t, 1, 1, 6, 6).requires_grad_()
    y = t.nn.functional.interpolate(x, scale_factor=0.5)
    g = t.zeros(1, 1, 3, 3)
    g[0, 0, 0, 0] = float("nan")
    return t.autograd.grad(y, x, g)


def adaptive_gradients(t: Any) -> Any:
    found = []
    for n, size in ((1, 3), (2, (4, 3)), (3, (2, 3, 1))):
        for kind in ("avg", "max"):
            x = numbers(t, 2, 3, *(7, 5, 4)[:n], grad=True)
            pool = getattr(t.nn.functional, f"adaptive_{kind}_pool{n}d")
            found.append(_grads(t, pool(x, size), x))
    return found


def folded(t: Any) -> Any:
    """Windows with gaps, padding and steps."""
    found = []
    for kernel, gap, pad, step in (
        (1, 1, 0, 1), (2, 1, 0, 1), ((2, 3), (2, 1), (1, 2), (1, 2)), (3, 1, 1, 3), (2, 3, 2, 2),
    ):  # fmt: skip
        x = numbers(t, 2, 3, 9, 8, grad=True)
        columns = t.nn.functional.unfold(x, kernel, gap, pad, step)
        back = t.nn.functional.fold(columns, (9, 8), kernel, gap, pad, step)
        found.append(_grads(t, back, x))
    return found


def bags(t: Any) -> Any:
    """Every way to say which rows a bag has."""
    fn = t.nn.functional.embedding_bag
    index = t.tensor([0, 4, 2, 2, 1, 0, 3])
    found = []
    for mode in ("sum", "mean", "max"):
        for options in (
            {"offsets": t.tensor([0, 2, 2, 5])},
            {"offsets": t.tensor([0, 3, 7]), "include_last_offset": True},
            {"offsets": t.tensor([0, 2, 5]), "padding_idx": 2},
        ):
            w = numbers(t, 5, 3, grad=True)
            found.append(_grads(t, fn(index, w, mode=mode, **options), w))
        w = numbers(t, 5, 3, grad=True)
        found.append(_grads(t, fn(index[:6].reshape(2, 3), w, mode=mode), w))
    w, each = numbers(t, 5, 3, grad=True), numbers(t, 7, seed=1, grad=True)
    y = fn(index, w, t.tensor([0, 4]), mode="sum", per_sample_weights=each)
    found.append(_grads(t, y, w, each))
    return found


def bag_refusals(t: Any) -> Any:
    fn, w, index = t.nn.functional.embedding_bag, t.ones(3, 2), t.tensor([0, 1])
    return (
        raises(lambda: fn(t.tensor([0, 7]), w, t.tensor([0])), "takes value 7"),
        raises(lambda: fn(t.tensor([0, -1]), w, t.tensor([0]), mode="sum"), "takes value -1"),
        raises(lambda: fn(index, w, t.tensor([1])), r"offsets\[0\] has to be 0"),
        raises(lambda: fn(index, w), "offsets has to be a 1D Tensor"),
        raises(lambda: fn(index, w, t.tensor([0]), mode="median"), "mode has to be one of"),
    )


def unpooled(t: Any) -> Any:
    found = []
    for n in (1, 2, 3):
        f = t.nn.functional
        x = numbers(t, 2, 3, *(6, 4, 8)[:n], grad=True)
        y, where = getattr(f, f"max_pool{n}d")(x, 2, return_indices=True)
        back = getattr(f, f"max_unpool{n}d")(y, where, 2)
        found.append((where, _grads(t, back, x)))
    return found


def sampled_on_grids(t: Any) -> Any:
    found = []
    for mode in ("bilinear", "nearest", "bicubic"):
        for padding in ("zeros", "border", "reflection"):
            for corners in (True, False):
                x = numbers(t, 2, 3, 5, 4, grad=True)
                grid = (numbers(t, 2, 3, 6, 2, seed=1) * 0.8).requires_grad_()
                y = t.nn.functional.grid_sample(x, grid, mode, padding, corners)
                found.append(_grads(t, y, x, grid))
    return found


def ctc(t: Any) -> Any:
    """Padded and concatenated targets, an empty one, an impossible one."""
    x = numbers(t, 8, 3, 5, grad=True)
    sizes = t.tensor([8, 7, 2])
    targets, lengths = t.tensor([[1, 1, 2], [3, 4, 0], [1, 1, 1]]), t.tensor([3, 2, 3])
    joined = t.tensor([1, 1, 2, 3, 4, 1, 1, 1])
    found = []
    for given in (targets, joined):
        for options in ({}, {"reduction": "sum"}, {"reduction": "none", "zero_infinity": True}):
            log = x.log_softmax(-1)
            y = t.nn.functional.ctc_loss(log, given, sizes, lengths, zero_infinity=True) * 0
            y = y + t.nn.functional.ctc_loss(log, given, sizes, lengths, **options)
            found.append(y.detach())
    return found


def histograms(t: Any) -> Any:
    x = numbers(t, 50, 2)
    return (
        t.histc(x, 7, -1, 1),
        t.histogram(x[:, 0].contiguous(), 5),
        t.histogram(x[:, 0].contiguous(), t.tensor([-1.0, 0.0, 2.0]), weight=x[:, 1].abs()),
        list(t.histogramdd(x, [3, 4])),
        list(t.histogramdd(x, [3, 4], range=[-1.0, 1.0, 0.0, 2.0], density=True)),
        t.bincount(t.tensor([1, 1, 4]), weights=t.tensor([0.5, 1.0, 2.0]), minlength=7),
    )


def hashes(t: Any) -> Any:
    x = numbers(t, 3, 5)
    return (
        t.hash_tensor(x),
        t.hash_tensor(x, 1, keepdim=True),
        x.hash_tensor((0, 1)),
        t.hash_tensor(t.tensor([1, 2, 3], dtype=t.int8)),
        t.hash_tensor(x.flip(0)) == t.hash_tensor(x),
        raises(lambda: t.hash_tensor(t.ones(2), mode=3), "Unknown hash_tensor mode: 3"),
        raises(lambda: t.hash_tensor(t.zeros(0)), "Expected reduction dim to be specified"),
    )


# ---- steps of optimizers over lists -----------------------------------------------------------


def _lists(t: Any, count: int) -> list[list[Any]]:
    shapes = ((5, 3), (7,), ())
    return [[numbers(t, *s, seed=10 * k + i) for i, s in enumerate(shapes)] for k in range(count)]


def fused_adam(t: Any) -> Any:
    found = []
    for name in ("_fused_adam_", "_fused_adamw_"):
        for amsgrad in (False, True):
            for maximize in (False, True):
                lists = _lists(t, 5)
                lists[2:] = [[x.abs() for x in tensors] for tensors in lists[2:]]
                steps = [t.tensor(float(i + 1)) for i in range(3)]
                tops = lists[4] if amsgrad else []
                getattr(t, name)(
                    *lists[:4], tops, steps, lr=0.1, beta1=0.9, beta2=0.99, weight_decay=0.01,
                    eps=1e-8, amsgrad=amsgrad, maximize=maximize,
                )  # fmt: skip
                found.append((lists[0], lists[2:4], tops, steps))
    return found


def fused_sgd(t: Any) -> Any:
    found = []
    for momentum, nesterov, first in ((0.0, False, False), (0.9, True, False), (0.9, False, True)):
        params, grads, buffers = _lists(t, 3)
        t._fused_sgd_(
            params, grads, buffers if momentum else [], weight_decay=0.1, momentum=momentum, lr=0.1,
            dampening=0.0, nesterov=nesterov, maximize=False, is_first_step=first,
        )  # fmt: skip
        found.append((params, buffers if momentum else []))
    return found


def fused_adagrad(t: Any) -> Any:
    found = []
    for scale in (None, t.tensor(4.0)):
        params, grads, sums = _lists(t, 3)
        sums = [x.abs() for x in sums]
        steps = [t.tensor(2.0), t.tensor(5.0), t.tensor(1.0)]
        t._fused_adagrad_(
            params, grads, sums, steps, lr=0.1, lr_decay=0.01, weight_decay=0.1, eps=1e-10,
            maximize=scale is None, grad_scale=scale,
            found_inf=None if scale is None else t.tensor(0.0),
        )  # fmt: skip
        found.append((params, grads, sums))
    return found


def scaled(t: Any) -> Any:
    """Gradients unscaled, and the scale itself over six steps."""
    grads, infinite = _lists(t, 1)[0], t.zeros(())
    t._amp_foreach_non_finite_check_and_unscale_(grads, infinite, t.tensor(0.5))
    bad, seen = [t.tensor([1.0, float("inf")]), t.ones(2)], t.zeros(())
    t._amp_foreach_non_finite_check_and_unscale_(bad, seen, t.tensor(0.5))
    scale, tracker, history = t.tensor(1024.0), t.tensor(0, dtype=t.int32), []
    for failed in (0.0, 0.0, 1.0, 0.0, 0.0, 0.0):
        t._amp_update_scale_(scale, tracker, t.tensor(failed), 2.0, 0.5, 2)
        history.append((scale.clone(), tracker.clone()))
    return grads, infinite, bad[1], seen, history


ROWS: Rows = {
    "resized gradients": resized_gradients,
    "resized ends": resized_ends,
    "adaptive gradients": adaptive_gradients,
    "folded": folded,
    "bags": bags,
    "bag refusals": bag_refusals,
    "unpooled": unpooled,
    "sampled on grids": sampled_on_grids,
    "ctc": ctc,
    "histograms": histograms,
    "hashes": hashes,
    "fused adam": fused_adam,
    "fused sgd": fused_sgd,
    "fused adagrad": fused_adagrad,
    "scaled gradients": scaled,
    "put and take": lambda t: (
        t.take(counted(t, 3, 4), t.tensor([[0, -1], [5, 11]])),
        counted(t, 3, 4).put_(t.tensor([1, 1, -2]), t.tensor([9.0, 8.0, 7.0])),
        counted(t, 3, 4).put_(t.tensor([1, 1, -2]), t.tensor([9.0, 8.0, 7.0]), accumulate=True),
        raises(lambda: t.take(t.ones(3), t.tensor([3])), "out of range"),
    ),
    "scattered copies": lambda t: (
        t.slice_scatter(t.zeros(4, 3), t.ones(2, 3), 0, 1, None, 2),
        t.select_scatter(t.zeros(2, 3), t.ones(2), 1, -1),
        t.diagonal_scatter(t.zeros(3, 3), t.ones(2), 1),
        t.as_strided_scatter(t.zeros(6), t.ones(2, 2), (2, 2), (3, 1), 1),
        raises(lambda: t.select_scatter(t.zeros(2, 3), t.ones(3), 1, 0), "same"),
    ),
    "copies of views": lambda t: [
        (y, y._is_view(), y.is_contiguous())
        for y in (
            t.transpose_copy(counted(t, 2, 3), 0, 1),
            t.expand_copy(counted(t, 1, 3), (2, 3)),
            t.diagonal_copy(counted(t, 3, 3)),
            t.unfold_copy(counted(t, 6), 0, 3, 2),
            t.squeeze_copy(counted(t, 2, 1, 3)),
            *t.split_copy(counted(t, 5), 2),
            *t.unbind_copy(counted(t, 2, 2)),
        )
    ],
    "fractional pooling": lambda t: [
        t.nn.functional.fractional_max_pool2d(
            numbers(t, 1, 2, 8, 8), 2, output_size=(4, 5), _random_samples=t.full((1, 2, 2), 0.4),
            return_indices=True,
        ),
        t.nn.functional.fractional_max_pool3d(
            numbers(t, 1, 2, 6, 6, 6), 2, output_ratio=0.5, return_indices=True,
            _random_samples=t.full((1, 2, 3), 0.4),
        ),
    ],
}  # fmt: skip
