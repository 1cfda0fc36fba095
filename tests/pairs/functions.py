# ruff: noqa: E501 - rows of a table
"""The small functions: each takes a tensor `v` of any shape and gives one back.

A text is an expression, or statements with `return` in the last one. Where a shape does not suit it raises, in eager
too, and such a pair is left out; so most rows say what they do for other shapes. Every op of the conformance tier T0
occurs (`test_pairs.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucerne

WRITTEN = "c = v.clone(); {}; return c"
"""A copy that is written to."""

ELEMENTWISE = {
    "exp": "(v * .1).exp()", "relu": "F.relu(v)", "sigmoid": "v.sigmoid()", "mul2": "v.mul(2)", "gelu": "F.gelu(v)",
    "where": "torch.where(v > 0, v, v * .5)", "clamp": "v.clamp(-1, 1)", "cast": "v.double().float()", "tanh": "torch.tanh(v)",
    "square": "v.square()", "mask": "v.masked_fill(v > 1, 0.)", "dropout0": "F.dropout(v, 0.5, False)", "sin": "v.sin()",
    "cos": "v.cos() + v", "log": "(v.abs() + 1).log()", "rsqrt": "(v.abs() + 1).rsqrt()", "sqrt": "(v * v + 1).sqrt()",
    "pow": "v.pow(2)", "rpow": "2. ** v.clamp(-3, 3)", "rsub": "1. - v", "rdiv": "1. / (v * v + 1)", "neg": "v.neg()",
    "silu": "F.silu(v)", "softplus": "F.softplus(v)", "leaky": "F.leaky_relu(v)", "hardswish": "F.hardswish(v)",
    "hardsig": "F.hardsigmoid(v)", "erf": "v.erf()", "floor": "v.floor() + v", "ceil": "v.ceil() - v", "round": "v.round() * v",
    "sign": "v.sign() * v", "finite": "torch.where(v.isnan() | v.isinf(), 0., v) * v.isfinite()", "lerp": "v.lerp(v * 2, .3)",
    "addcmul": "torch.addcmul(v, v, v, value=.1)", "addcdiv": "torch.addcdiv(v, v, v * v + 1)", "maximum": "torch.maximum(v, -v)",
    "minimum": "torch.minimum(v, v * .5)", "compare": "v.eq(0) + v.ne(1) + v.ge(0) + v.lt(2) + v.le(1) + v.gt(-1) + v",
    "logic": "v * ((v > 0).logical_not().logical_and(v < 1).logical_or(v > 2))", "bits": "v * ((v.int().bitwise_and(3)).bitwise_or(4).bitwise_not())",
    "remainder": "v.remainder(3.) + v", "floordiv": "v.floor_divide(2.) + v", "half": "v.half().float()", "bfloat16": "v.to(torch.bfloat16).bfloat16().float()",
    "bool": "v.bool() * v", "long": "v.long().float() + v", "sub": "v.sub(.5)", "div": "v.div(2.)", "add": "v.add(1.)", "abs": "v.abs()",
    "ones": "v * torch.ones_like(v) + torch.ones(v.shape) + v.new_ones(v.shape)", "zeros": "v + torch.zeros_like(v) + torch.zeros(v.shape) + v.new_zeros(v.shape)",
    "full": "v * torch.full_like(v, 2.) + torch.full(v.shape, 3.) + v.new_full(v.shape, .5)", "arange": "v + torch.arange(v.shape[-1])",
    "linspace": "v * torch.linspace(0, 1, v.shape[-1])", "empty": "v + torch.empty_like(v).zero_() + torch.empty(v.shape).fill_(2.) + v.new_empty(v.shape).zero_()",
    "noise": "v + 0 * (torch.randn(v.shape) + torch.randn_like(v) + torch.rand_like(v))", "draws": "v + 0 * torch.bernoulli(torch.full_like(v, .5)) + 0 * torch.randint(0, 5, v.shape) + 0 * torch.normal(0., 1., v.shape) + 0 * torch.empty_like(v).uniform_()",
}  # fmt: skip
VIEWS = {
    "first": "v[0]", "lead": "v[:1]", "col": "v[..., :1]", "tail": "v[-1:]", "rest": "v[1:]", "step": "v[::2]", "step1": "v[..., 1::2]",
    "t": "v.transpose(0, -1)", "T": "v.T if v.dim() == 2 else v.squeeze()", "t2": "v.t()", "flip": "v.flip(0)", "flip1": "v.flip(-1)", "new": "v[None]", "last": "v[..., -1]",
    "midcol": "v[..., 1:2]", "firstcol": "v[..., 0]", "corner": "v[0, 0]", "flat": "v.reshape(-1)", "flatten": "v.flatten()", "expand": "v[:1].expand(*v.shape)", "expandcol": "v[..., :1].expand(*v.shape)",
    "expand_as": "v[:1].expand_as(v)", "unsq": "v.unsqueeze(-1)", "unsq0": "v.unsqueeze(0)", "diag": "v.diagonal(0, 0, -1)", "unfold": "v.unfold(0, 2, 1)", "chunk": "v.chunk(2, 0)[-1]",
    "chunk0": "v.chunk(2, -1)[0]", "split": "v.split(1, 0)[0]", "unbind": "v.unbind(-1)[0]", "select": "v.select(-1, 0)", "narrow": "v.narrow(0, 0, 1)", "slice": "torch.ops.aten.slice(v, 0, 0, 1) if hasattr(torch.ops.aten, 'slice') else v[0:1]",
    "strided": "v.contiguous().as_strided((2, 2), (1, 1))", "contig": "v.transpose(0, -1).contiguous()", "perm": "v.permute(*reversed(range(v.dim())))",
    "swap": "v.reshape(v.shape[::-1])", "view_as": "v.contiguous().view_as(v)", "view": "v.contiguous().view(-1, v.shape[-1])", "halves": "v.contiguous().view(2, -1)", "squeeze": "v.squeeze()",
    "meshgrid": "torch.meshgrid(v.flatten()[:3], v.flatten()[:2], indexing='ij')[0]",
}  # fmt: skip
FOLDS = {
    "sum": "v.sum()", "sum0": "v.sum(0)", "sumk": "v.sum(-1, keepdim=True)", "mean0k": "v.mean(0, keepdim=True)", "mean": "v.mean(-1)", "max0": "v.max(0).values", "min": "v.min()", "amaxk": "v.amax(-1, keepdim=True)",
    "var": "v.var(-1, unbiased=False, keepdim=True)", "std": "v.std(-1, unbiased=False)", "lse": "v.logsumexp(-1, keepdim=True)", "argmax": "v.argmax(-1).float()", "argmax0": "v.argmax(0).float()", "cumsum": "v.cumsum(0)", "cumsum1": "v.cumsum(-1)",
    "cummax": "v.cummax(0).values", "sort": "v.sort(-1).values", "topk": "v.topk(1, -1).values", "norm": "v / (v.norm(dim=-1, keepdim=True) + 1)", "vector": "torch.linalg.vector_norm(v + .1, dim=0)", "normalize": "F.normalize(v + .1, dim=-1)",
    "prod": "(v * .5).prod(-1)", "any": "(v > 0).any(-1).float()", "all": "(v > -9).all(0).float() * v", "median": "v.median(-1).values", "item": "v * (2. if v.sum().item() > 0 else .5)", "equal": "v if torch.equal(v, v) else -v",
    "nonzero": "v.flatten()[(v.flatten() > 9.).nonzero().flatten()].sum() + v", "center": "v - v.mean(-1, keepdim=True)", "center0": "v - v.mean(0)", "base0": "v - v[0]", "base1": "v / (1 + v[..., :1].abs())", "span": "v - v.amin()",
}  # fmt: skip
NORMS = {
    "softmax": "v.softmax(-1)", "softmax0": "v.softmax(0)", "logsm": "v.log_softmax(-1)", "ln": "F.layer_norm(v, v.shape[-1:])", "lnw": "F.layer_norm(v, (6,), *LN) if v.shape[-1] == 6 else F.layer_norm(v, v.shape[-1:])",
    "rms": "F.rms_norm(v, v.shape[-1:])", "bn": "F.batch_norm(v, None, None, training=True)", "bne": "F.batch_norm(v[None], torch.zeros(v.shape[0]), torch.ones(v.shape[0]))", "in": "F.instance_norm(v[None])", "gn": "F.group_norm(v[None], 1)",
    "mse": "F.mse_loss(v, v * .5 + 1)", "smooth": "F.smooth_l1_loss(v, v * .5 + 1)", "bce": "F.binary_cross_entropy_with_logits(v, (v > 0).float())", "ce": "F.cross_entropy(v, torch.zeros(v.shape[0], dtype=torch.long), reduction='none')", "nll": "F.nll_loss(v.log_softmax(-1), torch.zeros(v.shape[0], dtype=torch.long))",
}  # fmt: skip
PRODUCTS = {
    "mm": "v.mm(W)", "matmul": "torch.matmul(v, W) if v.shape[-1] == 6 else v * 3", "gram": "v @ v.transpose(0, 1)", "bmm": "torch.bmm(v[None], v[None].transpose(1, 2))[0]", "addmm": "torch.addmm(LN[0], v, W)", "baddbmm": "torch.baddbmm(v[None], v[None], W[None])[0]",
    "lin": "F.linear(v, W, LN[0]) if v.shape[-1] == 6 else v", "lingelu": "F.gelu(F.linear(v, W, LN[0])) + LN[1]", "sdpa": "F.scaled_dot_product_attention(v[None, None], v[None, None], v[None, None])[0, 0]", "outer": "torch.outer(v.reshape(-1)[:5], v.reshape(-1)[:3])",
    "square_outer": "v.flatten()[:4, None] * v.flatten()[None, -4:]", "sym": "(v.flatten()[:4, None] * v.flatten()[None, -4:]) + (v.flatten()[:4, None] * v.flatten()[None, -4:]).T", "ein": "torch.einsum('...i,...i->...', v, v)", "ein2": "torch.einsum('ij,kj->ik', v, v)",
    "conv1": "F.conv1d(v[None], K)[0]", "conv1r": "F.conv1d(v[None], K, LN[0][:4])[0].relu()", "conv3": "F.conv1d(v.reshape(1, 1, -1), K3, padding=1)", "pixel": "F.conv2d(v.reshape(1, -1, 1, 1).expand(3, v.numel(), 1, 1).contiguous(), torch.ones(2, v.numel(), 1, 1))", "pixelb": "F.conv2d(v.reshape(-1, 2, 1, 1), P)", "se": "F.conv2d(v.reshape(-1, 2, 1, 1), P).sigmoid() * v.reshape(-1, 2, 1, 1)",
    "conv2": "F.conv2d(v.reshape(1, 1, *v.shape[-2:]), K2, padding=1) + 1", "conv2cl": "F.conv2d(v.reshape(1, 2, -1, 3).contiguous(memory_format=torch.channels_last), P, LN[0][:2]).relu()", "convt": "F.conv_transpose2d(v.reshape(1, 1, *v.shape[-2:]), K2, stride=2) * 2", "conv3d": "F.conv3d(v.reshape(1, 1, 2, -1, 3), K3D, padding=1).relu() + 1",
}  # fmt: skip
SHUFFLES = {
    "cat": "torch.cat([v, v * 2], 0)", "cat1": "torch.cat([v[..., :1], v], -1)", "stack": "torch.stack([v, v.relu()], -1)", "pad": "F.pad(v, (1, 1))", "padr": "F.pad(v[None], (1, 0), mode='replicate')[0]", "roll": "v.roll(1, 0)", "roll1": "v.roll(1, -1)", "index": "v[IDX[IDX < v.shape[0]]]", "index0": "v[torch.tensor(0)]", "index_select": "v.index_select(0, torch.tensor([0, 0]))", "gather": "v.gather(-1, v.argsort(-1))",
    "repeat": "v.repeat(2, *[1] * (v.dim() - 1))", "rep_i": "v.repeat_interleave(2, 0)", "tril": "v.tril()", "triu": "v.triu(1)", "eye": "v * torch.eye(v.shape[-2], v.shape[-1])", "pool": "F.max_pool1d(v[None], 2)[0]", "pool2": "F.max_pool2d(v[None, None], 2)[0, 0]", "avg": "F.avg_pool1d(v[None], 2)[0]", "avg2": "F.avg_pool2d(v[None, None], 2)[0, 0]", "adapt": "F.adaptive_avg_pool1d(v[None], 1)[0]", "adapt2": "F.adaptive_avg_pool2d(v[None, None], 1)[0]",
    "interp": "F.interpolate(v[None], scale_factor=2)[0]", "bilinear": "F.interpolate(v[None, None], scale_factor=2, mode='bilinear')[0, 0]", "scatter": "torch.zeros_like(v).scatter(0, torch.zeros_like(v, dtype=torch.long), v)", "scatter_add": "torch.ones_like(v).scatter_add(0, torch.zeros_like(v, dtype=torch.long), v)", "idx_add": "torch.zeros_like(v).index_add(0, torch.zeros(v.shape[0], dtype=torch.long), v)", "index_put": "v.index_put((torch.tensor([0]),), v[-1:])", "onehot": "F.one_hot((v > 0).long().reshape(-1), 2).float()", "emb": "F.embedding((v > 0).long(), W[:2])",
    "tri": "torch.tril(torch.ones(3, 3)) * v.sum()", "multinomial": "v + 0 * torch.multinomial(torch.ones(v.shape[-1]), v.shape[-1], replacement=True)",
}  # fmt: skip
WRITES = {
    name: WRITTEN.format(text)
    for name, text in {
        "put0": "c[0].mul_(2)", "put": "c[..., :1].copy_(c[..., -1:])", "fill": "c[1:].fill_(3.)", "zero": "c[..., 0].zero_()", "addself": "c.add_(c[:1].clone())", "addrow": "c.add_(c[0].clone())", "setmask": "c[c > 1] = 1.", "relu_": "c.relu_()", "rowadd": "c[-1].add_(c[0])", "settail": "c[1:] = c[:-1] * 2", "diagset": "c.diagonal(0, 0, -1).mul_(.5)", "transput": "c.transpose(0, -1).add_(1.)", "stepput": "c[::2] = c[::2].exp() * .1",
    }.items()
}  # fmt: skip
TEXTS = {**ELEMENTWISE, **VIEWS, **FOLDS, **NORMS, **PRODUCTS, **SHUFFLES, **WRITES}

_CORE = """
exp relu sigmoid mul2 gelu where clamp cast tanh square mask dropout0 full half log
first lead col tail rest step step1 t flip flip1 new last midcol firstcol corner flat expand expandcol unsq diag unfold
chunk chunk0 split unbind select narrow strided contig perm swap view halves squeeze
sum sum0 sumk mean0k max0 amaxk var lse argmax argmax0 cumsum cumsum1 cummax sort topk norm prod any median center0 base0 base1
softmax softmax0 logsm ln lnw rms bn bne in gn mse ce
mm gram conv1 conv1r conv3 pixel pixelb se conv2 conv2cl convt conv3d lin lingelu sdpa outer sym ein
cat cat1 stack pad padr roll index index0 gather repeat rep_i tril pool avg adapt interp scatter idx_add onehot emb tri
put0 put fill addself addrow setmask relu_ rowadd settail diagset transput
"""
CORE = _CORE.split()
"""Those of which every ordered pair is tried; the others occur in trees."""


def operands() -> dict[str, Any]:
    """The names that texts may use."""
    g = lucerne.Generator().manual_seed(0)

    def draw(*shape: int) -> Any:
        return lucerne.randn(*shape, generator=g)

    return {
        "torch": lucerne, "F": lucerne.nn.functional, "W": draw(6, 6), "K": draw(4, 4, 1), "K3": draw(1, 1, 1),
        "P": draw(2, 2, 1, 1), "K2": draw(1, 1, 2, 2), "K3D": draw(32, 1, 2, 1, 2), "LN": (draw(6), draw(6)),
        "IDX": lucerne.tensor([2, 0, 1]),
    }  # fmt: skip


def function(name: str, text: str, space: dict[str, Any]) -> Callable[[Any], Any]:
    """A row as a function of its own, whose name and text a traceback shows."""
    body = text if "return " in text else f"return {text}"
    scope = dict(space)
    exec(compile(f"def {name}(v):\n " + "\n ".join(body.split("; ")), f"<{name}>", "exec"), scope)
    made: Callable[[Any], Any] = scope[name]
    return made


def functions() -> dict[str, Callable[[Any], Any]]:
    space = operands()
    return {name: function(f"f_{name}", text, space) for name, text in TEXTS.items()}
