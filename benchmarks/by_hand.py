"""A GPT and a ResNet-18 written by hand in JAX: what `benchmarks.xla` puts beside the device `xla`.

Parameters are nested dicts with the names of the modules in `tests.xla.models`. Products are in
full float32, as on the device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Tree = dict[str, Any]
LR, BETAS, EPS, DECAY = 1e-3, (0.9, 0.999), 1e-8, 0.01
SGD_LR, MOMENTUM = 0.01, 0.9


def _copied(value: Any) -> Any:
    return jnp.array(value.detach().cpu().numpy())


def nested(named: Any, taken: Any = _copied) -> Tree:
    """A dict of dicts from dotted names; `taken` of each value, by default a copy."""
    made: Tree = {}
    for name, value in named:
        *path, last = name.split(".")
        place = made
        for part in path:
            place = place.setdefault(part, {})
        place[last] = taken(value)
    return made


def _linear(p: Tree, x: Any) -> Any:
    y = jnp.matmul(x, p["weight"].T, precision="highest")
    return y + p["bias"] if "bias" in p else y


def _mean_log(logits: Any, y: Any) -> Any:
    logs = jax.nn.log_softmax(logits, -1)
    return -jnp.take_along_axis(logs, y.reshape(-1, 1), 1).mean()


# ---- GPT -----------------------------------------------------------------------------------------


def _norm(p: Tree, x: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    var = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(var + 1e-5) * p["weight"] + p["bias"]


def _gelu(x: Any) -> Any:
    """As the device has it. (`jax.nn.gelu` takes erfc, which makes the whole step a third slower
    on XLA's CPU: beside that the device would look better than it is.)"""
    return 0.5 * x * (1 + lax.erf(x * np.float32(0.5**0.5)))


def _block(p: Tree, x: Any, heads: int) -> Any:
    b, t, c = x.shape
    parts = jnp.split(_linear(p["qkv"], _norm(p["first"], x)), 3, -1)
    q, k, v = (y.reshape(b, t, heads, c // heads).transpose(0, 2, 1, 3) for y in parts)
    scores = jnp.matmul(q, k.swapaxes(-1, -2), precision="highest")
    scores = scores / np.float32((c // heads) ** 0.5)
    scores = jnp.where(jnp.tril(jnp.ones((t, t), bool)), scores, -jnp.inf)
    y = jnp.matmul(jax.nn.softmax(scores, -1), v, precision="highest")
    x = x + _linear(p["out"], y.transpose(0, 2, 1, 3).reshape(b, t, c))
    return x + _linear(p["down"], _gelu(_linear(p["up"], _norm(p["second"], x))))


def gpt_step(heads: int) -> Callable[..., Any]:
    """A step of AdamW: from (params, m, v, t, x, y) to the loss and all but the last two, new."""

    def loss_of(params: Tree, x: Any, y: Any) -> Any:
        h = params["tokens"]["weight"][x] + params["places"]["weight"][: x.shape[1]]
        for k in range(len(params["blocks"])):
            h = _block(params["blocks"][str(k)], h, heads)
        logits = _linear(params["head"], _norm(params["norm"], h))
        return _mean_log(logits.reshape(-1, logits.shape[-1]), y)

    def step(params: Tree, m: Tree, v: Tree, t: Any, x: Any, y: Any) -> Any:
        loss, grads = jax.value_and_grad(loss_of)(params, x, y)
        leaves, tree = jax.tree.flatten(params)
        rest = (jax.tree.leaves(z) for z in (grads, m, v))
        made = [_adamw(*given, t + 1) for given in zip(leaves, *rest, strict=True)]
        return loss, *(jax.tree.unflatten(tree, z) for z in zip(*made, strict=True)), t + 1

    return step


def _adamw(p: Any, g: Any, m: Any, v: Any, t: Any) -> Any:
    m = BETAS[0] * m + (1 - BETAS[0]) * g
    v = BETAS[1] * v + (1 - BETAS[1]) * g * g
    denom = jnp.sqrt(v / (1 - BETAS[1] ** t)) + EPS
    return p * np.float32(1 - LR * DECAY) - LR * (m / (1 - BETAS[0] ** t)) / denom, m, v


# ---- ResNet-18 -----------------------------------------------------------------------------------


def _conv(p: Tree, x: Any, stride: int) -> Any:
    w = p["weight"]
    edge = w.shape[-1] // 2
    return lax.conv_general_dilated(
        x, w, (stride, stride), [(edge, edge)] * 2, precision=lax.Precision.HIGHEST,
        dimension_numbers=("NCHW", "OIHW", "NCHW"),
    )  # fmt: skip


def _batch_norm(p: Tree, stats: Tree, x: Any) -> tuple[Any, Tree]:
    """The batch's own numbers are used, and taken into the running ones."""
    mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3))
    count = x.size // x.shape[1]
    shaped = [z.reshape(-1, 1, 1) for z in (mean, var, p["weight"], p["bias"])]
    y = (x - shaped[0]) * lax.rsqrt(shaped[1] + 1e-5) * shaped[2] + shaped[3]
    unbiased = var * (count / (count - 1))
    return y, {
        "running_mean": 0.9 * stats["running_mean"] + 0.1 * mean,
        "running_var": 0.9 * stats["running_var"] + 0.1 * unbiased,
        "num_batches_tracked": stats["num_batches_tracked"] + 1,
    }


def _residual(p: Tree, stats: Tree, x: Any) -> tuple[Any, Tree]:
    stride = 2 if "short" in p else 1
    y, one = _batch_norm(p["norm_one"], stats["norm_one"], _conv(p["one"], x, stride))
    y, two = _batch_norm(p["norm_two"], stats["norm_two"], _conv(p["two"], jax.nn.relu(y), 1))
    short = _conv(p["short"], x, stride) if "short" in p else x
    return jax.nn.relu(y + short), {"norm_one": one, "norm_two": two}


def _resnet_loss(params: Tree, stats: Tree, x: Any, y: Any) -> tuple[Any, Tree]:
    new: Tree = {}
    h, new["1"] = _batch_norm(params["1"], stats["1"], _conv(params["0"], x, 1))
    edges = [(0, 0), (0, 0), (1, 1), (1, 1)]
    h = lax.reduce_window(jax.nn.relu(h), -jnp.inf, lax.max, (1, 1, 3, 3), (1, 1, 2, 2), edges)
    blocks = sorted((k for k in params if "one" in params[k]), key=int)
    for k in blocks:
        h, new[k] = _residual(params[k], stats[k], h)
    head = max(params, key=int)
    return _mean_log(_linear(params[head], h.mean((2, 3))), y), new


def resnet_step(params: Tree, velocity: Tree, stats: Tree, x: Any, y: Any) -> Any:
    """A step of SGD with momentum: the loss, and the first three arguments anew."""
    found = jax.value_and_grad(_resnet_loss, has_aux=True)(params, stats, x, y)
    (loss, stats), grads = found
    velocity = jax.tree.map(lambda v, g: MOMENTUM * v + g, velocity, grads)
    params = jax.tree.map(lambda p, v: p - SGD_LR * v, params, velocity)
    return loss, params, velocity, stats
