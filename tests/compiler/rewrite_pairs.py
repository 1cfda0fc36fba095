# ruff: noqa: E501 - rows of a table
"""Fragments that must agree: two ways to write one thing.

A row names its operands with their shapes in letters (`x:ab`), each letter a size drawn anew; a star is any
shape. `exact`: equal to the last bit when nothing is contracted across ops (the bitwise mode).
"""

from __future__ import annotations

from dataclasses import dataclass

F = "torch.nn.functional."


@dataclass(frozen=True)
class Pair:
    name: str
    operands: str
    """Words `name:shape` or `name:shape:dtype`, with dtypes i (index below the size of the letter after it),
    b (bool), p (positive floats) and z (int64)."""
    left: str
    right: str
    exact: bool = False
    floats: tuple[str, ...] = ("float32", "float32", "float64")
    """One is drawn; in bfloat16 only what is exact agrees."""


_ANY = ("float32", "float64", "bfloat16", "float16")
_NORM = (
    "(x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True, unbiased=False) + 1e-5)"
)
_ATTENTION = "torch.softmax(q @ k.mT * (1 / 2.0), -1) @ v"


def _exact(name: str, operands: str, left: str, right: str) -> Pair:
    return Pair(name, operands, left, right, True, _ANY)


PAIRS: tuple[Pair, ...] = (
    # arithmetic
    _exact("double", "x:*", "x + x", "2 * x"),
    _exact("subtract", "x:* y:*", "x - y", "x + (-y)"),
    _exact("halve", "x:*", "x / 2", "x * 0.5"),
    _exact("commuted sum", "x:* y:*", "x + y", "y + x"),
    _exact("commuted product", "x:* y:*", "x * y", "y * x"),
    _exact("square", "x:*", "x * x", "torch.square(x)"),
    _exact("power two", "x:*", "x ** 2", "x * x"),
    _exact("maximum", "x:* y:*", "torch.maximum(x, y)", "torch.where(x > y, x, y)"),
    _exact("relu", "x:*", "torch.relu(x)", "torch.clamp_min(x, 0)"),
    _exact("relu by mask", "x:*", "torch.relu(x)", "torch.where(x > 0, x, torch.zeros_like(x))"),
    _exact("abs", "x:*", "torch.abs(x)", "torch.where(x < 0, -x, x)"),
    _exact("clamp", "x:*", "x.clamp(-1, 1)", "torch.minimum(torch.maximum(x, torch.full_like(x, -1)), torch.full_like(x, 1))"),
    _exact("alpha", "x:* y:*", "torch.add(x, y, alpha=2)", "x + 2 * y"),
    _exact("swapped where", "x:* y:* m:*:b", "torch.where(m, x, y)", "torch.where(~m, y, x)"),
    _exact("masked fill", "x:* m:*:b", "x.masked_fill(m, 0.5)", "torch.where(m, torch.full_like(x, 0.5), x)"),
    _exact("common parts", "x:* y:*", "(x * y) + (x * y)", "t = x * y\nreturn t + t"),
    _exact("not quite common", "x:* y:*", "(x - y) * (y - x)", "t = x - y\nreturn t * (-t)"),
    _exact("dead code", "x:* y:*", "t = torch.exp(x) @ torch.ones(()) if False else x * y\nreturn x + y", "x + y"),
    _exact("known numbers", "x:ab", "x * (torch.ones(b) * 2)", "x * 2"),
    _exact("number as tensor", "x:*", "x * 1.5", "x * torch.full((), 1.5, dtype=x.dtype)"),
    _exact("nothing added", "x:*", "x * 1 + 0", "x + 0"),
    Pair("lerp", "x:* y:*", "torch.lerp(x, y, 0.25)", "x + 0.25 * (y - x)"),
    _exact("de Morgan", "m:*:b n:*:b", "~(m & n)", "~m | ~n"),
    _exact("whole halves", "i:*:z", "(i // 2) * 2 + i % 2", "i.clone()"),
    _exact("counts", "m:ab:b", "m.sum(0)", "m.to(torch.int64).sum(0)"),
    _exact("two numbers", "x:*", "(x * 2.0) * (x * 4.0)", "(x * 4.0) * (x * 2.0)"),
    _exact("two numbers apart", "x:*", "(x * 2.0) - (x * 0.25)", "t = x * 0.25\nreturn x * 2 - t"),
    _exact("signs of nought", "x:*:p", "torch.atan2(x * 0.0, -x) - torch.atan2(x * -0.0, -x)", "torch.atan2(torch.zeros_like(x), -x) - torch.atan2(-torch.zeros_like(x), -x)"),
    _exact("there and back", "x:*", "x.to(torch.bfloat16).to(x.dtype) - x", "t = x.to(torch.bfloat16)\nreturn t.to(x.dtype) - x"),
    _exact("through whole numbers", "x:*", "x.detach().to(torch.int64).to(x.dtype) * 1", "torch.trunc(x.detach()) * 1 + 0.0"),
    _exact("through a narrow one", "x:*", "x.to(torch.float16).to(torch.float64)", "x.to(torch.float16).to(torch.float32).to(torch.float64)"),
    Pair("exp of a sum", "x:* y:*", "torch.exp(x + y)", "torch.exp(x) * torch.exp(y)"),
    Pair("log of a product", "x:*:p y:*:p", "torch.log(x * y)", "torch.log(x) + torch.log(y)"),
    Pair("sigmoid mirrored", "x:*", "1 - torch.sigmoid(x)", "torch.sigmoid(-x)"),
    Pair("tanh by sigmoid", "x:*", "torch.tanh(x)", "2 * torch.sigmoid(2 * x) - 1"),
    Pair("silu", "x:*", F + "silu(x)", "x * torch.sigmoid(x)"),
    Pair("gelu", "x:*", F + "gelu(x)", "0.5 * x * (1 + torch.erf(x * 0.7071067811865476))"),
    Pair("softplus", "x:*", F + "softplus(x)", "torch.log1p(torch.exp(x))"),
    Pair("rsqrt", "x:*:p", "torch.rsqrt(x)", "1 / torch.sqrt(x)"),
    Pair("distribute", "x:* y:* z:*", "(x + y) * z", "x * z + y * z"),
    Pair("addcmul", "x:* y:* z:*", "torch.addcmul(x, y, z, value=0.5)", "x + 0.5 * y * z"),
    Pair("quotient", "x:* y:*:p", "x / y", "x * torch.reciprocal(y)"),
    # moves
    _exact("transpose twice", "x:ab", "x.mT.mT * 1", "x * 1"),
    _exact("permute and back", "x:abc", "x.permute(2, 0, 1).permute(1, 2, 0) + 1", "x + 1"),
    _exact("sum of transposed", "x:ab y:ba", "(x + y.mT).mT", "x.mT + y"),
    _exact("neighbours", "x:ab", "x[:, 1:] - x[:, :-1]", "x.narrow(1, 1, b - 1) - x.narrow(1, 0, b - 1)"),
    _exact("cut and joined", "x:ab", "torch.cat([x[:1], x[1:]], 0)", "x.clone()"),
    _exact("empty part", "x:ab y:cb", "torch.cat([x, x[:0], y], 0) * 1", "torch.cat([x, y], 0) * 1"),
    _exact("chunks joined", "x:ab", "torch.cat(x.chunk(2, 1), 1)", "x.clone()"),
    _exact("unbound and stacked", "x:ab", "torch.stack(torch.unbind(x, 0), 0)", "x.clone()"),
    _exact("flip twice", "x:ab", "torch.flip(torch.flip(x, (0,)), (0,))", "x.clone()"),
    _exact("flip both", "x:ab", "torch.flip(x, (0, 1))", "torch.flip(torch.flip(x, (1,)), (0,))"),
    _exact("roll and back", "x:ab", "torch.roll(torch.roll(x, 1, 0), -1, 0)", "x.clone()"),
    _exact("roll by cat", "x:ab", "torch.roll(x, 1, 1)", "torch.cat([x[:, -1:], x[:, :-1]], 1)"),
    _exact("reshape and back", "x:abc", "x.reshape(-1).reshape(x.shape) * 2", "x * 2"),
    _exact("strided halves", "x:ab", "torch.cat([x[:, ::2].mT, x[:, 1::2].mT], 0)", "torch.cat([x.mT[::2], x.mT[1::2]], 0)"),
    _exact("gather all", "x:ab", "torch.gather(x, 1, torch.arange(b).expand(a, b))", "x.clone()"),
    _exact("select by index", "x:ab i:c:ia", "x[i]", "torch.index_select(x, 0, i)"),
    _exact("embedding", "x:ab i:c:ia", F + "embedding(i, x)", "x.index_select(0, i)"),
    _exact("expand and read", "x:b", "x.expand(3, b)[1]", "x.clone()"),
    _exact("outer", "x:a y:b", "torch.outer(x, y)", "x[:, None] * y"),
    _exact("pad and cut", "x:ab", F + "pad(x, (2, 1))[:, 2:-1]", "x.clone()"),
    _exact("triangles", "x:ab", "torch.tril(x) + torch.triu(x, 1)", "x + 0"),
    _exact("double and back", "x:*", "x.to(torch.float64).to(x.dtype) * 1", "x * 1"),
    # writes
    _exact("add in place", "x:* y:*", "t = x.clone()\nt += y\nreturn t", "x + y"),
    _exact("write through a view", "x:ab y:b", "t = x.clone()\nt[0] += y\nreturn t", "torch.cat([(x[0] + y)[None], x[1:]], 0)"),
    _exact("write a column", "x:ab y:a", "t = x.clone()\nt.mT[0].copy_(y)\nreturn t", "torch.cat([y[:, None], x[:, 1:]], 1)"),
    _exact("fill a part", "x:ab", "t = x.clone()\nt[:, 1:] = 0.5\nreturn t", "torch.cat([x[:, :1], torch.full_like(x[:, 1:], 0.5)], 1)"),
    _exact("read then write", "x:* y:*", "t = x.clone()\nu = t * 2\nt.add_(y)\nreturn u + t", "x * 2 + (x + y)"),
    _exact("two views", "x:ab", "t = x.clone()\nu = t[0]\nw = t[:, 0]\nu.mul_(2)\nw.add_(1)\nreturn t + 0", "t = x.clone()\nt[0] *= 2\nt[:, 0] += 1\nreturn t + 0"),
    _exact("zero then add", "x:* y:*", "t = torch.zeros_like(x)\nt += y\nreturn t * x", "y * x"),
    _exact("scatter once", "x:ab", "torch.zeros_like(x).scatter_add(1, torch.arange(b).expand(a, b), x)", "x + 0"),
    _exact("put by index", "x:ab", "t = x.clone()\nt[torch.tensor([0])] = 1.5\nreturn t", "torch.cat([torch.full_like(x[:1], 1.5), x[1:]], 0)"),
    _exact("write transposed", "x:aa y:aa", "t = x.clone()\nt.mT.copy_(y)\nreturn t * 1", "y.mT * 1"),
    _exact("write broadcast", "x:ab y:b", "t = x.clone()\nt.copy_(y)\nreturn t * x", "y * x"),
    _exact("write converted", "x:ab m:ab:b", "t = x.clone()\nt.copy_(m)\nreturn t * 2", "m.to(x.dtype) * 2"),
    _exact("write laid out", "x:ab y:ba", "t = x.clone()\nt.copy_(y.mT)\nreturn t.reshape(-1)", "y.mT.reshape(-1) * 1"),
    _exact("swap", "x:ab y:ab", "t = x.clone()\nx.copy_(y)\ny.copy_(t)\nreturn t", "t = x * 1\nu = y * 1\nx.copy_(u)\ny.copy_(t)\nreturn t"),
    _exact("turn around", "x:ab", "x.copy_(torch.flip(x, (0, 1)))\nreturn x + 0", "t = torch.flip(x.clone(), (0, 1))\nx.copy_(t)\nreturn t + 0"),
    _exact("shift along", "x:ab", "x[:, 1:] = x[:, :-1].clone()\nreturn x + 0", "t = torch.cat([x[:, :1], x[:, :-1]], 1)\nx.copy_(t)\nreturn t + 0"),
    Pair("update early", "x:aa y:aa", "t = x + 1\nu = x.clone()\nx.copy_(t)\nreturn u @ y", "r = x @ y\nx.add_(1)\nreturn r"),
    Pair("update between", "x:ab y:ab", "t = x * y\nu = x.clone()\nx.copy_(t)\nreturn torch.softmax(u, 1) + t", "t = x * y\nr = torch.softmax(x, 1) + t\nx.mul_(y)\nreturn r"),
    _exact("update askew", "x:aa y:aa", "x.copy_(x.mT + y)\nreturn x * 1", "t = x.mT.contiguous()\nx.copy_(t + y)\nreturn t + y"),
    _exact("update from behind", "x:ab", "x.copy_(torch.roll(x, 1, 0) + x)\nreturn x * 1", "t = torch.cat([x[-1:], x[:-1]], 0) + x\nx.copy_(t)\nreturn t * 1"),
    _exact("update late", "x:ab y:ab", "u = x * y\nx.add_(1)\nw = u + x\nx.mul_(2)\nreturn w", "u = x * y\nt = x + 1\nx.copy_(t * 2)\nreturn u + t"),
    _exact("part after part", "x:ab", "t = x.clone()\nu = t * 3\nt[1:] = 0.5\nt[:, 1:] += 1\nreturn u + t", "t = x.clone()\nt[1:] = 0.5\ns = t.clone()\ns[:, 1:] = t[:, 1:] + 1\nreturn x * 3 + s"),
    # folds
    Pair("sums both ways", "x:ab", "x.sum(0).sum() * x.sum(1).sum()", "x.sum() * x.sum()"),
    Pair("known sum", "x:ab", "x + torch.full((a, b), 0.5).sum()", "x + 0.5 * a * b"),
    _exact("known joins", "x:b", "x + torch.cat([torch.zeros(1, dtype=x.dtype), torch.ones(b - 1, dtype=x.dtype)])", "t = x + 1\nt[0] = x[0] + 0\nreturn t"),
    Pair("centred twice", "x:ab", "x - x.mean(0) - x.mean(1, keepdim=True)", "t = x.mean(1, keepdim=True)\nu = x - x.mean(0)\nreturn u - t"),
    Pair("quotients of sums", "x:ab:p", "x / x.sum(1, keepdim=True)", "x * (1 / x.sum(1, keepdim=True))"),
    Pair("wide rows", "x:5L", "torch.softmax(x, 1) * x.amax(1, keepdim=True)", "e = torch.exp(x - x.amax(1, keepdim=True))\nreturn e / e.sum(1, keepdim=True) * x.amax(1, keepdim=True)"),
    Pair("wide columns", "x:L5", "x - x.sum(0)", "x - (torch.ones(1, L, dtype=x.dtype) @ x)[0]"),
    Pair("sum of joined", "x:ab y:cb", "torch.cat([x, y], 0).sum(0)", "x.sum(0) + y.sum(0)"),
    Pair("sum of stacked", "x:ab y:ab", "torch.stack([x, y]).sum(0)", "x + y"),
    Pair("sum in two steps", "x:abc", "x.sum((0, 2))", "x.sum(2).sum(0)"),
    Pair("sum of all", "x:abc", "x.sum()", "x.reshape(-1).sum(0)"),
    Pair("sum of transposed rows", "x:ab", "x.mT.sum(0)", "x.sum(1)"),
    Pair("sum by product", "x:ab", "x.sum(1)", "x @ torch.ones(b, dtype=x.dtype)"),
    Pair("expanded sum", "x:b", "x.expand(3, b).sum(0)", "3 * x"),
    Pair("linear sum", "x:ab", "(2 * x).sum(0)", "2 * x.sum(0)"),
    Pair("mean", "x:ab", "x.mean(1)", "x.sum(1) / b"),
    Pair("variance", "x:ab", "x.var(1, unbiased=False)", "((x - x.mean(1, keepdim=True)) ** 2).mean(1)"),
    Pair("norm", "x:ab", "torch.linalg.vector_norm(x, 2, 1)", "torch.sqrt((x * x).sum(1))"),
    Pair("last of cumsum", "x:ab", "torch.cumsum(x, 1)[:, -1]", "x.sum(1)"),
    Pair("cumsum by triangle", "x:ab", "torch.cumsum(x, 1)", "x @ torch.triu(torch.ones(b, b, dtype=x.dtype))"),
    _exact("largest of joined", "x:ab y:cb", "torch.cat([x, y], 0).amax(0)", "torch.maximum(x.amax(0), y.amax(0))"),
    _exact("largest both ways", "x:abc", "x.amax((0, 1))", "x.amax(1).amax(0)"),
    _exact("least is largest", "x:ab", "x.amin(1)", "-((-x).amax(1))"),
    _exact("position", "x:ab", "x.argmax(1)", "x.max(1).indices"),
    Pair("softmax shifted", "x:ab", "torch.softmax(x + 3, 1)", "torch.softmax(x, 1)"),
    Pair("softmax by hand", "x:ab", "torch.softmax(x, 1)", "e = torch.exp(x - x.amax(1, keepdim=True))\nreturn e / e.sum(1, keepdim=True)"),
    Pair("log softmax", "x:ab", F + "log_softmax(x, 1)", "x - torch.logsumexp(x, 1, keepdim=True)"),
    Pair("softmax of columns", "x:ab", "torch.softmax(x, 0)", "torch.softmax(x.mT, 1).mT"),
    Pair("layer norm", "x:ab", F + "layer_norm(x, (b,))", _NORM),
    Pair("cross entropy", "x:ab i:a:ib", F + "cross_entropy(x, i)", F + "nll_loss(" + F + "log_softmax(x, 1), i)"),
    Pair("square loss", "x:ab y:ab", F + "mse_loss(x, y)", "((x - y) ** 2).mean()"),
    Pair("trace", "x:aa", "torch.trace(x)", "torch.diagonal(x).sum()"),
    # products
    Pair("product transposed", "x:ab y:bc", "(x @ y).mT", "y.mT @ x.mT"),
    Pair("product distributed", "x:ab z:ab y:bc", "(x + z) @ y", "x @ y + z @ y"),
    Pair("product in two", "x:ab y:bc", "x @ y", "x[:, :1] @ y[:1] + x[:, 1:] @ y[1:]"),
    Pair("linear", "x:ab w:cb b_:c", F + "linear(x, w, b_)", "x @ w.mT + b_"),
    Pair("addmm", "x:ab w:cb b_:c", F + "linear(x, w, b_)", "torch.addmm(b_, x, w.mT)"),
    Pair("einsum", "x:abc y:acd", "torch.einsum('abc,acd->abd', x, y)", "torch.bmm(x, y)"),
    Pair("batched by hand", "x:2bc y:2cd", "torch.bmm(x, y)", "torch.stack([x[0] @ y[0], x[1] @ y[1]])"),
    Pair("product and relu", "x:ab w:cb", "torch.relu(" + F + "linear(x, w))", "torch.clamp_min(x @ w.mT, 0)"),
    Pair("scaled product", "x:ab y:bc", "(2 * x) @ y", "2 * (x @ y)"),
    Pair("vector", "x:ab y:b", "x @ y", "(x * y).sum(1)"),
    Pair("dot", "x:a y:a", "torch.dot(x, y)", "(x * y).sum()"),
    Pair("embedding by product", "x:ab i:c:ia", F + "embedding(i, x)", F + "one_hot(i, a).to(x.dtype) @ x"),
    Pair("pointwise convolution", "x:2355 w:c311", F + "conv2d(x, w)", "torch.einsum('nchw,oc->nohw', x, w[:, :, 0, 0])"),
    Pair("convolution of a sum", "x:2355 y:2355 w:c333", F + "conv2d(x + y, w, padding=1)", F + "conv2d(x, w, padding=1) + " + F + "conv2d(y, w, padding=1)"),
    Pair("average pool", "x:2344", F + "avg_pool2d(x, 2)", "x.reshape(2, 3, 2, 2, 2, 2).mean((3, 5))"),
    _exact("largest pool", "x:2344", F + "max_pool2d(x, 2)", "x.reshape(2, 3, 2, 2, 2, 2).amax((3, 5))"),
    Pair("attention", "q:22a4 k:22a4 v:22a4", F + "scaled_dot_product_attention(q, k, v)", _ATTENTION),
    Pair("batch norm", "x:ab m:b v:b:p", F + "batch_norm(x, m, v)", "(x - m) / torch.sqrt(v + 1e-5)"),
)  # fmt: skip
