"""The same programs in JAX: `jax.numpy`, derivatives and `jit` only, optimizers by hand.

Parameters are a flat dict with the names of `weights.py`. A training step is one jitted function
that takes over the memory of what it replaces (`donate_argnums`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import weights
from benchmarks.weights import Images, Language, Vectors

Tree = dict[str, Any]


class Running:
    """A training step with its state: `step()` makes one and gives the loss."""

    def __init__(self, step: Callable[..., Any], state: tuple[Tree, ...], batch: Any) -> None:
        self._step = jax.jit(step, donate_argnums=tuple(range(len(state))))
        self.state, self.batch = state, batch

    def step(self) -> Any:
        loss, *state = self._step(*self.state, *self.batch)
        self.state = tuple(state)
        jax.block_until_ready(self.state)
        return loss


# ---- pieces ------------------------------------------------------------------------------------


def linear(p: Tree, name: str, x: Any, kind: Any = None) -> Any:
    """`x` times a weight stored by rows of outputs; with `kind` both in that dtype."""
    weight, bias = p[name + ".weight"], p.get(name + ".bias")
    if kind is not None:
        x, weight = x.astype(kind), weight.astype(kind)
        bias = None if bias is None else bias.astype(kind)
    y = jnp.matmul(x, weight.T)
    return y if bias is None else y + bias


def layer_norm(p: Tree, name: str, x: Any, eps: float = 1e-5) -> Any:
    x = x.astype(jnp.float32)
    mean = x.mean(-1, keepdims=True)
    variance = jnp.square(x - mean).mean(-1, keepdims=True)
    y = (x - mean) * jax.lax.rsqrt(variance + eps)
    return y * p[name + ".weight"] + p[name + ".bias"]


def gelu(x: Any) -> Any:
    return 0.5 * x * (1 + jax.lax.erf(x * np.asarray(2**-0.5, x.dtype)))


def attention(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
    """(batch, heads, length, size); the softmax in float32."""
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k).astype(jnp.float32) * q.shape[-1] ** -0.5
    if mask is not None:
        scores = jnp.where(mask, scores, -jnp.inf)
    scores = jax.nn.softmax(scores, -1).astype(v.dtype)
    return jnp.einsum("bhqk,bhkd->bhqd", scores, v)


def heads_of(s: Language, x: Any) -> list[Any]:
    """Query, key and value of a projection, each (batch, heads, length, size)."""
    batch, length, _ = x.shape
    parts = jnp.split(x, 3, 2)
    return [t.reshape(batch, length, s.heads, -1).transpose(0, 2, 1, 3) for t in parts]


def joined(y: Any) -> Any:
    batch, _, length, _ = y.shape
    return y.transpose(0, 2, 1, 3).reshape(batch, length, -1)


def cross_entropy(logits: Any, target: Any) -> Any:
    """Mean over the rows, in float32."""
    logits = logits.astype(jnp.float32)
    chosen = jnp.take_along_axis(logits, target[:, None], 1)[:, 0]
    return (jax.nn.logsumexp(logits, 1) - chosen).mean()


def zeros(p: Tree) -> Tree:
    return {name: jnp.zeros_like(x) for name, x in p.items()}


def adam(p: Tree, g: Tree, m: Tree, v: Tree, count: Any, lr: float, decay: float) -> Any:
    """One AdamW update (`decay` 0: Adam): new parameters and averages."""
    first, second = 1 - 0.9**count, 1 - 0.999**count
    m = {n: 0.9 * m[n] + 0.1 * g[n] for n in p}
    v = {n: 0.999 * v[n] + 0.001 * jnp.square(g[n]) for n in p}
    new = {}
    for n in p:
        denominator = jnp.sqrt(v[n]) / jnp.sqrt(second) + 1e-8
        new[n] = p[n] * (1 - lr * decay) - lr / first * m[n] / denominator
    return new, m, v


def adam_step(loss_of: Callable[..., Any], lr: float, decay: float) -> Callable[..., Any]:
    def step(p: Tree, m: Tree, v: Tree, counts: Tree, x: Any, target: Any) -> Any:
        loss, g = jax.value_and_grad(loss_of)(p, x, target)
        count = counts["steps"] + 1
        p, m, v = adam(p, g, m, v, count.astype(jnp.float32), lr, decay)
        return loss, p, m, v, {"steps": count}

    return step


def adam_training(p: Tree, batch: Any, loss_of: Any, lr: float, decay: float) -> Running:
    state = (p, zeros(p), zeros(p), {"steps": jnp.zeros((), jnp.int32)})
    return Running(adam_step(loss_of, lr, decay), state, batch)


def arrays(shapes: weights.Shapes) -> Tree:
    return {name: jnp.asarray(x) for name, x in weights.filled(shapes).items()}


def batch_of(found: tuple[np.ndarray, np.ndarray]) -> tuple[Any, Any]:
    x, target = found
    narrow = x.astype(np.int32) if x.dtype == np.int64 else x
    return jnp.asarray(narrow), jnp.asarray(target.astype(np.int32))


# ---- programs ----------------------------------------------------------------------------------


def gpt(s: Language, half: bool = False) -> Running:
    kind = jnp.bfloat16 if half else None
    mask = jnp.tril(jnp.ones((s.length, s.length), bool))

    def loss_of(p: Tree, ids: Any, target: Any) -> Any:
        x = p["token.weight"][ids] + p["place.weight"]
        for i in range(s.layers):
            at = f"blocks.{i}."
            q, k, v = heads_of(s, linear(p, at + "qkv", layer_norm(p, at + "norm1", x), kind))
            x = x + linear(p, at + "out", joined(attention(q, k, v, mask)), kind)
            y = gelu(linear(p, at + "up", layer_norm(p, at + "norm2", x), kind))
            x = x + linear(p, at + "down", y, kind)
        logits = linear(p, "head", layer_norm(p, "norm", x), kind)
        return cross_entropy(logits.reshape(-1, s.words), target)

    batch = batch_of(weights.words(s))
    return adam_training(arrays(weights.gpt_shapes(s)), batch, loss_of, 3e-4, 0.01)


def mlp(s: Vectors) -> Running:
    def loss_of(p: Tree, x: Any, target: Any) -> Any:
        last = len(s.widths) - 2
        for i in range(last):
            x = jax.nn.relu(linear(p, f"layers.{i}", x))
        return cross_entropy(linear(p, f"layers.{last}", x), target)

    batch = batch_of(weights.rows(s))
    return adam_training(arrays(weights.mlp_shapes(s)), batch, loss_of, 1e-3, 0.0)


def conv(p: Tree, name: str, x: Any, stride: int) -> Any:
    """Channels last; the kernel is kept as (height, width, inputs, outputs)."""
    kernel = p[name + ".weight"]
    edge = (kernel.shape[0] - 1) // 2
    return jax.lax.conv_general_dilated(
        x,
        kernel,
        (stride, stride),
        ((edge, edge), (edge, edge)),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )


def batch_norm(p: Tree, running: Tree, name: str, x: Any) -> tuple[Any, Tree]:
    """By the statistics of the batch; the running ones move by a tenth, as torch's do."""
    mean = x.mean((0, 1, 2))
    variance = jnp.square(x - mean).mean((0, 1, 2))
    count = x.size // x.shape[-1]
    seen = {name + ".mean": mean, name + ".var": variance * (count / (count - 1))}
    moved = {n: 0.9 * running[n] + 0.1 * jax.lax.stop_gradient(v) for n, v in seen.items()}
    y = (x - mean) * jax.lax.rsqrt(variance + 1e-5)
    return y * p[name + ".weight"] + p[name + ".bias"], moved


def _resnet_loss(s: Images) -> Callable[..., Any]:
    def loss_of(p: Tree, running: Tree, x: Any, target: Any) -> Any:
        new: Tree = {}

        def norm(name: str, x: Any) -> Any:
            y, moved = batch_norm(p, running, name, x)
            new.update(moved)
            return y

        x = jax.nn.relu(norm("norm", conv(p, "stem", x, 1)))
        for at, _, _, stride in weights.residuals(s):
            y = jax.nn.relu(norm(at + "norm1", conv(p, at + "conv1", x, stride)))
            y = norm(at + "norm2", conv(p, at + "conv2", y, 1))
            if at + "fit.weight" in p:
                x = norm(at + "fit_norm", conv(p, at + "fit", x, stride))
            x = jax.nn.relu(y + x)
        return cross_entropy(linear(p, "head", x.mean((1, 2))), target), new

    return loss_of


def resnet(s: Images) -> Running:
    loss_of = _resnet_loss(s)

    def step(p: Tree, speed: Tree, running: Tree, x: Any, target: Any) -> Any:
        (loss, running), g = jax.value_and_grad(loss_of, has_aux=True)(p, running, x, target)
        speed = {n: 0.9 * speed[n] + (g[n] + 5e-4 * p[n]) for n in p}
        return loss, {n: p[n] - 0.01 * speed[n] for n in p}, speed, running

    shapes = weights.resnet_shapes(s)
    p = arrays(shapes)
    for name, shape in shapes.items():
        if len(shape) == 4:
            p[name] = jnp.transpose(p[name], (2, 3, 1, 0))
    running: Tree = {}
    for name, shape in shapes.items():
        if "norm" in name and name.endswith(".weight"):
            running[name.replace(".weight", ".mean")] = jnp.zeros(shape)
            running[name.replace(".weight", ".var")] = jnp.ones(shape)
    x, target = batch_of(weights.pictures(s))
    return Running(step, (p, zeros(p), running), (jnp.transpose(x, (0, 2, 3, 1)), target))


def bert(s: Language) -> Callable[[], Any]:
    @jax.jit
    def forward(p: Tree, ids: Any) -> Any:
        x = p["token.weight"][ids] + p["place.weight"][: s.length] + p["kind.weight"][0]
        x = layer_norm(p, "norm", x, 1e-12)
        for i in range(s.layers):
            at = f"layers.{i}."
            y = joined(attention(*heads_of(s, linear(p, at + "qkv", x))))
            x = layer_norm(p, at + "norm1", x + linear(p, at + "out", y), 1e-12)
            y = linear(p, at + "down", gelu(linear(p, at + "up", x)))
            x = layer_norm(p, at + "norm2", x + y, 1e-12)
        return x

    p, (ids, _) = arrays(weights.bert_shapes(s)), batch_of(weights.words(s))
    return lambda: forward(p, ids).block_until_ready()


def decoder(s: Language) -> Callable[[int], tuple[Any, Any]]:
    """Chooses so many words greedily: the words and their logits."""
    size = s.width // s.heads

    @functools.partial(jax.jit, donate_argnums=(1,))
    def step(p: Tree, cache: Tree, token: Any, position: Any) -> Any:
        x = p["token.weight"][token] + p["place.weight"][position]
        mask = jnp.arange(s.length) <= position
        new: Tree = {}
        for i in range(s.layers):
            at = f"blocks.{i}."
            q, k, v = heads_of(s, linear(p, at + "qkv", layer_norm(p, at + "norm1", x))[None])
            place = (0, 0, position, 0)
            keys = jax.lax.dynamic_update_slice(cache[at + "keys"], k, place)
            values = jax.lax.dynamic_update_slice(cache[at + "values"], v, place)
            new |= {at + "keys": keys, at + "values": values}
            x = x + linear(p, at + "out", joined(attention(q, keys, values, mask))[0])
            y = gelu(linear(p, at + "up", layer_norm(p, at + "norm2", x)))
            x = x + linear(p, at + "down", y)
        logits = linear(p, "head", layer_norm(p, "norm", x))
        return logits.argmax(-1).astype(jnp.int32), logits.max(-1), new

    p = arrays(weights.gpt_shapes(s))
    names = [f"blocks.{i}.{kind}" for i in range(s.layers) for kind in ("keys", "values")]
    positions = [jnp.asarray(i, jnp.int32) for i in range(s.length)]

    def generate(words: int) -> tuple[Any, Any]:
        cache = {n: jnp.zeros((1, s.heads, s.length, size)) for n in names}
        token, chosen, logits = jnp.zeros(1, jnp.int32), [], []
        for i in range(words):
            token, best, cache = step(p, cache, token, positions[i])
            chosen.append(token)
            logits.append(best)
        return jnp.concatenate(chosen), jnp.concatenate(logits)

    return generate
