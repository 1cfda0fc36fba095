"""Functions of nn and of signal flow that op_db leaves out."""

from typing import Any

from tests.conformance.own_cases.tools import Rows, counted, numbers, raises


def _weights(t: Any, gates: int, *, layers: int = 1, directions: int = 1) -> list[Any]:
    """The flat weights of a recurrent network of 3 inputs and 4 units."""
    flat = []
    for layer in range(layers):
        for direction in range(directions):
            wide = 3 if layer == 0 else 4 * directions
            seed = 10 * layer + direction
            flat += [
                numbers(t, gates * 4, wide, seed=seed, grad=True),
                numbers(t, gates * 4, 4, seed=seed + 1, grad=True),
                numbers(t, gates * 4, seed=seed + 2, grad=True),
                numbers(t, gates * 4, seed=seed + 3, grad=True),
            ]
    return flat


def lstm(t: Any) -> Any:
    weights = _weights(t, 4, layers=2, directions=2)
    x = numbers(t, 5, 2, 3, grad=True)
    hx = (t.zeros(4, 2, 4), t.zeros(4, 2, 4))
    out, h, c = t.lstm(x, hx, weights, True, 2, 0.0, False, True, False)
    return out, h, c, t.autograd.grad(out.sum() + (c**2).sum(), [x, *weights])


def gru(t: Any) -> Any:
    weights = _weights(t, 3)
    x = numbers(t, 2, 5, 3, grad=True)
    out, h = t.gru(x, t.zeros(1, 2, 4), weights, True, 1, 0.0, False, False, True)
    return out, h, t.autograd.grad((out**2).sum(), [x, *weights])


def rnn(t: Any) -> Any:
    weights = _weights(t, 1)
    x = numbers(t, 5, 2, 3)
    hx = t.zeros(1, 2, 4)
    tanh = t.rnn_tanh(x, hx, weights, True, 1, 0.0, False, False, False)
    relu = t.rnn_relu(x, hx, weights, True, 1, 0.0, False, False, False)
    return tanh, relu


def cells(t: Any) -> Any:
    x, h, c = numbers(t, 2, 3), numbers(t, 2, 4, seed=1), numbers(t, 2, 4, seed=2)
    return (
        t.lstm_cell(x, (h, c), *_weights(t, 4)),
        t.gru_cell(x, h, *_weights(t, 3)),
        t.rnn_tanh_cell(x, h, *_weights(t, 1)),
    )


def packed(t: Any) -> Any:
    rnn_tools = t.nn.utils.rnn
    sequences = [counted(t, 3, 2), counted(t, 1, 2), counted(t, 2, 2)]
    padded = rnn_tools.pad_sequence(sequences, batch_first=True, padding_value=-1.0)
    pack = rnn_tools.pack_padded_sequence(padded, [3, 1, 2], batch_first=True, enforce_sorted=False)
    back = rnn_tools.pad_packed_sequence(pack, batch_first=True)
    return padded, tuple(pack), back


def fold(t: Any) -> Any:
    F = t.nn.functional
    x = numbers(t, 2, 3, 5, 6, grad=True)
    columns = F.unfold(x, (2, 3), padding=1, stride=(1, 2), dilation=1)
    back = F.fold(columns, (5, 6), (2, 3), padding=1, stride=(1, 2))
    return columns, back, t.autograd.grad((back**2).sum(), x)


def affine_grid(t: Any) -> Any:
    F = t.nn.functional
    theta = numbers(t, 2, 2, 3, grad=True)
    flat = F.affine_grid(theta, [2, 1, 3, 4], align_corners=False)
    aligned = F.affine_grid(theta, [2, 1, 3, 4], align_corners=True)
    solid = F.affine_grid(numbers(t, 1, 3, 4), [1, 1, 2, 3, 2], align_corners=False)
    return flat, aligned, solid, t.autograd.grad((flat * aligned).sum(), theta)


def gumbel_softmax(t: Any) -> Any:
    F = t.nn.functional
    t.manual_seed(0)
    logits = numbers(t, 4, 5, grad=True)
    soft = F.gumbel_softmax(logits, tau=0.7)
    hard = F.gumbel_softmax(logits, hard=True, dim=0)
    return soft, hard, t.autograd.grad((soft**2).sum(), logits)


def losses(t: Any) -> Any:
    F = t.nn.functional
    x, target = numbers(t, 4, 3), t.tensor([0, 2, -100, 1])
    return {
        "ignore_index": F.cross_entropy(x, target),
        "smoothing": F.cross_entropy(x, target, label_smoothing=0.1, reduction="none"),
        "weights": F.cross_entropy(x, target, weight=t.tensor([1.0, 2.0, 0.5])),
        "probabilities": F.cross_entropy(x, x.softmax(1)),
        "all ignored": F.cross_entropy(x, t.full((4,), -100)),
        "nll of images": F.nll_loss(numbers(t, 2, 3, 4, 4).log_softmax(1), t.ones(2, 4, 4).long()),
        "huber": F.huber_loss(x, x + 3, delta=0.5),
        "out of range": raises(lambda: F.cross_entropy(x, t.tensor([0, 3, 1, 1])), "out of bounds"),
        "reduction": raises(lambda: F.mse_loss(x, x, reduction="other"), "not a valid value"),
    }


def attention(t: Any) -> Any:
    F = t.nn.functional
    q, k, v = (numbers(t, 2, 2, 5, 4, seed=i, grad=True) for i in range(3))
    mask = t.ones(5, 5, dtype=t.bool).tril()
    outs = [
        F.scaled_dot_product_attention(q, k, v, is_causal=True),
        F.scaled_dot_product_attention(q, k, v, attn_mask=mask),
        F.scaled_dot_product_attention(q, k, v, attn_mask=mask.float(), scale=0.3),
        F.scaled_dot_product_attention(q, k[:, :1], v[:, :1], enable_gqa=True),
    ]
    return outs, t.autograd.grad(sum((out**2).sum() for out in outs), [q, k, v])


def modules(t: Any) -> Any:
    """Layers with state: training, evaluation, state_dict."""
    nn = t.nn
    t.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(0.5))
    x = numbers(t, 6, 3)
    trained = model(x)
    model.eval()
    state = model.state_dict()
    return trained, model(x), list(state), list(state.values()), repr(model)


def training(t: Any) -> Any:
    """Ten steps of each common optimizer on one small problem."""
    made = {}
    for name in ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad"):
        t.manual_seed(0)
        layer = t.nn.Linear(3, 1)
        optimizer = getattr(t.optim, name)(layer.parameters(), lr=0.05)
        losses = []
        for _ in range(10):
            optimizer.zero_grad()
            loss = (layer(numbers(t, 8, 3)) - numbers(t, 8, 1, seed=1)).pow(2).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        made[name] = (losses, layer.weight.detach())
    return made


ROWS: Rows = {
    "lstm": lstm,
    "gru": gru,
    "rnn": rnn,
    "cells": cells,
    "packed sequences": packed,
    "fold": fold,
    "affine_grid": affine_grid,
    "gumbel_softmax": gumbel_softmax,
    "losses": losses,
    "attention": attention,
    "modules": modules,
    "training": training,
    "one_hot": lambda t: (
        t.nn.functional.one_hot(t.tensor([[0, 2]])),
        t.nn.functional.one_hot(t.tensor([1]), 5),
        raises(lambda: t.nn.functional.one_hot(t.tensor([-1])), "non-negative"),
    ),
    "pad modes": lambda t: [
        t.nn.functional.pad(counted(t, 1, 2, 3), (2, 1), mode)
        for mode in ("constant", "reflect", "replicate", "circular")
    ],
    "interpolate": lambda t: [
        t.nn.functional.interpolate(counted(t, 1, 1, 3, 4), scale_factor=1.6, mode=mode)
        for mode in ("nearest", "bilinear", "bicubic", "area", "nearest-exact")
    ],
    "einsum": lambda t: [
        t.einsum("ij,jk", counted(t, 2, 3), counted(t, 3, 4)),
        t.einsum("...ii->...i", counted(t, 2, 3, 3)),
        t.einsum("bij,bjk->ik", counted(t, 2, 2, 3), counted(t, 2, 3, 2)),
        t.einsum("i,j->ij", counted(t, 2), counted(t, 3)),
        raises(lambda: t.einsum("ij,jk", t.ones(2, 3), t.ones(2, 3))),
    ],
    "embedding": lambda t: [
        t.nn.functional.embedding(t.tensor([[0, 2]]), counted(t, 3, 2)),
        t.nn.functional.embedding_bag(t.tensor([0, 2, 1]), counted(t, 3, 2), t.tensor([0, 2])),
        raises(lambda: t.nn.functional.embedding(t.tensor([5]), t.ones(3, 2)), "out of range"),
    ],
    "cosine and pairwise": lambda t: [
        t.nn.functional.cosine_similarity(numbers(t, 3, 4), numbers(t, 3, 4, seed=1)),
        t.nn.functional.pairwise_distance(numbers(t, 3, 4), numbers(t, 3, 4, seed=1)),
        t.cdist(numbers(t, 3, 4), numbers(t, 2, 4, seed=1)),
    ],
    "convolutions of shapes": lambda t: [
        t.nn.functional.conv1d(numbers(t, 2, 4, 9), numbers(t, 6, 2, 3), groups=2, padding="same"),
        t.nn.functional.conv2d(numbers(t, 3, 7, 7), numbers(t, 2, 3, 3, 3), stride=2, dilation=2),
        t.nn.functional.conv_transpose2d(
            numbers(t, 1, 2, 4, 4), numbers(t, 2, 3, 3, 3), stride=2, output_padding=1
        ),
    ],
    "clip_grad_norm_": lambda t: (
        lambda p: (
            (p * 10).sum().backward(),
            t.nn.utils.clip_grad_norm_([p], 1.0),
            p.grad,
        )[1:]
    )(numbers(t, 3, grad=True)),
    "parameters to vector": lambda t: t.nn.utils.parameters_to_vector([t.ones(2), t.zeros(1, 2)]),
}
