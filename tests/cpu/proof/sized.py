"""Calls in many sizes, as expressions: what the frozen and default calls, all small, don't reach.

In an expression `n` is the size; `x(...)` makes a tensor of the dtype under test, `p(...)` one of
positive numbers, `odd(...)` one with infinities and nans in it, `i(high, ...)` one of indices below
`high`, `b(...)` one of bools; `rnn` are the last arguments of a recurrent layer.
"""

from __future__ import annotations

SMALL = (0, 1, 3, 15, 16, 17, 31, 33, 65)
LARGE = (257, 1025)

REAL = ["float32", "float64", "bfloat16", "float16"]
INTEGERS = ["int8", "uint8", "int16", "int32", "int64"]
NUMBERS = [*REAL, *INTEGERS, "complex64", "complex128"]
ALL = [*NUMBERS, "bool"]

_MATRIX = """
x(n, n) @ x(n, n)
x(1, n) @ x(n, 5)
x(n, 3) @ x(3, n)
x(7, n) @ x(n, 40)
x(n) @ x(n)
x(9, n) @ x(n)
x(2, 3, n, 5) @ x(3, 5, n)
x(3, n, 7) @ x(7, 33)
torch.addmm(x(n), x(6, 9), x(9, n))
torch.addmm(x(6, 1), x(6, n), x(n, 18), beta=2, alpha=3)
torch.baddbmm(x(2, 5, n), x(2, 5, 4), x(2, 4, n))
torch.bmm(x(3, n, 4), x(3, 4, n))
torch.mv(x(n, 8), x(8))
torch.outer(x(n), x(11))
torch.einsum("bij,bkj->bik", x(2, 5, n), x(2, 6, n))
"""

_FLOAT_MATRIX = """
F.linear(x(5, n), x(19, n), x(19))
F.linear(x(2, 3, n), x(n, n))
F.linear(x(n, 12), x(33, 12), x(33))
F.linear(x(n), x(4, n), x(4))
F.bilinear(x(4, n), x(4, 3), x(5, n, 3), x(5))
"""

_REDUCE = """
x(n).sum()
x(n, 7).sum(0)
x(7, n).sum(1)
x(3, n, 5).sum((0, 2))
x(4, n).sum(-1, keepdim=True)
x(3, n).prod(1)
x(n, 3).prod(0)
x(3, n, 2).cumsum(1)
x(n).cumsum(0)
x(5, n).cumprod(-1)
"""

_FLOAT_REDUCE = """
x(5, n).mean(-1)
x(n, 5).mean(0)
x(n).mean()
x(4, n).var(-1)
x(n, 4).std(0)
torch.var_mean(x(3, n), 1)
x(4, n).norm(dim=1)
x(n).norm(1)
torch.linalg.vector_norm(x(3, n, 2), 3, dim=(0, 1))
x(5, n).logsumexp(1)
x(n, 5).logsumexp(0)
F.softmax(x(5, n), -1)
F.softmax(x(n, 6), 0)
F.softmax(x(2, n, 3), 1)
F.log_softmax(x(5, n), -1)
F.log_softmax(x(n, 3), 0)
F.softmin(x(2, n), 1)
torch.logcumsumexp(x(2, n), 1)
F.layer_norm(x(3, n), (n,), x(n), x(n))
F.layer_norm(x(3, n), (n,))
F.layer_norm(x(2, 3, n), (3, n), x(3, n))
F.rms_norm(x(3, n), (n,), x(n))
F.group_norm(x(2, 6, n), 3, x(6), x(6))
F.batch_norm(x(3, n + 1, 5), x(n + 1).detach(), p(n + 1).detach(), x(n + 1), x(n + 1), True)
F.batch_norm(x(5, n + 1), None, None, x(n + 1), x(n + 1), True)
F.batch_norm(x(2, 3, 5, n + 1).permute(0, 3, 1, 2), None, None, x(n + 1), x(n + 1), True)
F.batch_norm(x(2, 4, n + 1), None, None, x(4), x(4), True)
F.batch_norm(x(2, 4, n, 3), x(4), p(4), x(4), x(4), False)
F.instance_norm(x(2, 3, n + 2))
F.normalize(x(3, n))
F.cosine_similarity(x(4, n), x(4, n))
torch.cdist(x(5, n), x(4, n))
F.pairwise_distance(x(4, n), x(4, n))
F.cross_entropy(x(6, n + 2), i(n + 2, 6))
F.cross_entropy(x(2, n + 2, 3), i(n + 2, 2, 3), label_smoothing=0.1)
F.cross_entropy(x(4, n + 1), p(4, n + 1))
F.nll_loss(x(6, n + 2), i(n + 2, 6), x(n + 2))
F.mse_loss(x(n), x(n))
F.l1_loss(x(n, 3), x(n, 3), reduction="sum")
F.smooth_l1_loss(x(n), x(n))
F.huber_loss(x(n), x(n))
F.kl_div(x(3, n), p(3, n), reduction="batchmean")
F.binary_cross_entropy(p(n), p(n))
F.binary_cross_entropy_with_logits(x(n), p(n))
F.poisson_nll_loss(x(n), p(n))
F.gaussian_nll_loss(x(n), x(n), p(n))
F.hinge_embedding_loss(x(n), x(n))
F.margin_ranking_loss(x(n), x(n), x(n))
F.triplet_margin_loss(x(3, n), x(3, n), x(3, n))
F.multi_margin_loss(x(3, n + 2), i(n + 2, 3))
"""

_POINTS = """
x(n) + x(n)
x(3, n) * x(n)
x(3, n) - x(3, 1)
x(2, n, 3) / p(2, n, 3)
torch.exp(x(n))
torch.tanh(x(3, n))
torch.sigmoid(x(n, 3))
F.gelu(x(n))
F.gelu(x(n), approximate="tanh")
F.silu(x(n))
F.mish(x(3, n))
F.softplus(x(n))
F.elu(x(n))
F.leaky_relu(x(n), 0.1)
F.prelu(x(2, 3, n), x(3))
F.glu(x(2, 2 * n), -1)
torch.addcmul(x(n), x(n), x(n), value=2)
torch.addcdiv(x(n), x(n), p(n))
torch.lerp(x(n), x(n), 0.3)
torch.lerp(x(n), x(n), p(n))
torch.where(b(n), x(n), x(n))
torch.where(b(3, 1), x(3, n), x(n))
torch.pow(p(n), 2.5)
torch.atan2(x(n), x(n))
torch.erf(x(n))
torch.lgamma(p(n))
torch.clamp(x(n), -0.5, 0.5)
x(n).masked_fill(b(n), 1.5)
F.dropout(x(n), 0.3)
F.threshold(x(n), 0.1, 20)
"""

_MOVES = """
x(n).clone()
x(3, n).t().contiguous()
x(2, n, 3).permute(2, 0, 1).contiguous()
x(n, 5).flip(0)
x(3, n).flip(1)
x(3, n).roll(1, 1)
torch.cat([x(3, n), x(3, 5), x(3, n)], 1)
torch.cat([x(n, 3), x(2, 3)], 0)
torch.stack([x(3, n), x(3, n)], 1)
F.pad(x(3, n), (1, 2))
F.pad(x(2, 3, n), (2, 0, 1, 1), value=1)
F.pad(x(2, 3, n + 3), (2, 1), mode="reflect")
F.pad(x(2, 3, n + 1), (2, 1), mode="replicate")
F.pad(x(2, 3, n + 2), (2, 1), mode="circular")
x(3, n).repeat(2, 3)
x(n).repeat_interleave(3)
x(3, n).tril()
x(n, 4).triu(1)
x(n).diag()
x(n, n).diagonal().clone()
x(2, n).gather(1, i(max(n, 1), 2, 5)) if n else x(2, 0)
x(n, 3).gather(0, i(max(n, 1), 4, 3)) if n else x(0, 3)
x(n + 1, 5)[i(n + 1, 9)]
x(5, n)[i(5, 7)]
x(5, n + 1)[i(5, 7), i(n + 1, 7)]
x(n + 1, 3).index_select(0, i(n + 1, 6))
x(3, n + 1).index_select(1, i(n + 1, 6))
x(n).masked_select(b(n))
x(n).take(i(n, 5)) if n else x(0)
F.embedding(i(5, 3, 4), x(5, n))
F.embedding_bag(i(5, 3, 4), x(5, n))
F.embedding_bag(i(5, 3, 4), x(5, n), mode="max")
F.one_hot(i(n + 1, 6), n + 1)
x(4, n).unfold(1, 3, 2).clone() if n >= 3 else x(4, n)
F.unfold(x(2, 3, 5, n + 2), (3, 2))
F.fold(x(2, 12, 4 * (n + 1)), (5, n + 2), (2, 2))
F.pixel_shuffle(x(2, 8, 3, n), 2)
x(5, n + 2)[:, 1:].as_strided((2, n), (1, 1)).clone()
"""

_SCATTERS = """
x(4, n).scatter(1, i(max(n, 1), 4, n), x(4, n)) if n else x(4, 0)
x(n, 3).scatter_add(0, i(max(n, 1), n, 3), x(n, 3)) if n else x(0, 3)
x(n + 1, 3).index_add(0, i(n + 1, 7), x(7, 3))
x(3, n + 1).index_add(1, i(n + 1, 7), x(3, 7))
x(n + 1, 3).index_put((i(n + 1, 9),), x(9, 3), accumulate=True)
x(n + 1, 3).index_put((i(n + 1, 9), i(3, 9)), x(9), accumulate=True)
x(n + 1, 5).index_copy(0, torch.arange(n + 1), x(n + 1, 5))
x(n + 1, 5).index_fill(0, i(n + 1, 3), 2)
x(n + 1, 4).scatter_reduce(0, i(n + 1, 6, 4), x(6, 4), "amax")
x(n + 1, 4).scatter_reduce(0, i(n + 1, 6, 4), x(6, 4), "mean")
x(n + 1, 4).scatter_reduce(0, i(n + 1, 6, 4), x(6, 4), "prod", include_self=False)
x(n, 3).masked_scatter(b(n, 3), x(n, 3))
x(4, n + 1).select_scatter(x(4), 1, n)
x(4, n + 2).slice_scatter(x(4, n), 1, 1, n + 1)
"""

_ORDER = """
x(n).sort()
x(3, n).sort(1, descending=True)
x(n, 3).sort(0, stable=True)
x(3, n).argsort(-1)
x(4, n + 2).topk(2, 1)
x(n + 3, 4).topk(3, 0, largest=False)
x(3, n + 1).kthvalue(1, 1)
x(3, n + 1).median(1)
x(3, n + 1).mode(1)
x(n + 1).amax(0)
x(3, n + 1).max(1)
x(n + 1, 3).min(0)
x(n + 1, 3).argmax(0)
x(3, n + 1).argmin(1)
torch.aminmax(x(3, n + 1), dim=1)
x(n).unique()
x(3, n + 1).cummax(1)
x(n + 1, 3).cummin(0)
torch.searchsorted(x(n).sort()[0], x(7))
torch.bucketize(x(n), x(5).sort()[0])
x(3, n).nonzero()
x(n).count_nonzero()
x(3, n).any(1)
x(n, 3).all(0)
torch.isin(x(n), x(5))
torch.histc(x(n).float(), 5)
torch.bincount(i(n + 1, 9))
"""

_CONVS = """
F.conv1d(x(2, 3, n + 4), x(5, 3, 3), x(5))
F.conv1d(x(2, 3, n + 4), x(5, 3, 4), stride=2, padding=1)
F.conv2d(x(2, 3, 7, n + 3), x(5, 3, 3, 3), x(5), padding=1)
F.conv2d(x(1, n + 1, 6, 6), x(17, n + 1, 3, 3), padding=1)
F.conv2d(x(1, 4, 9, n + 5), x(6, 2, 3, 3), groups=2, stride=2)
F.conv2d(x(2, n + 1, 5, 8), x(n + 1, 1, 3, 3), groups=n + 1, padding=1)
F.conv2d(x(2, 3, 8, n + 6), x(4, 3, 2, 3), dilation=2, padding=(1, 2))
F.conv2d(x(2, n + 1, 5, 5), x(9, n + 1, 1, 1), x(9))
F.conv2d(x(1, 3, n + 6, n + 6), x(20, 3, 7, 7), stride=2, padding=3)
F.conv3d(x(1, 2, 4, 5, n + 3), x(3, 2, 2, 3, 3), padding=1)
F.conv_transpose1d(x(2, 3, n + 1), x(3, 4, 3), stride=2)
F.conv_transpose2d(x(2, 3, 4, n + 1), x(3, 5, 3, 3), x(5), stride=2, padding=1, output_padding=1)
F.max_pool1d(x(2, 3, n + 3), 3, 2)
F.max_pool2d(x(2, 3, 7, n + 3), 3, 2, 1)
F.max_pool2d(x(2, 3, 8, n + 3), 2)
F.avg_pool1d(x(2, 3, n + 3), 3, 2)
F.avg_pool2d(x(2, 3, 7, n + 3), 3, 2, 1)
F.avg_pool2d(x(2, 3, 8, n + 3), 2, count_include_pad=False)
F.adaptive_avg_pool2d(x(2, 3, 7, n + 3), (3, 2))
F.adaptive_avg_pool2d(x(2, n + 1, 7, 7), 1)
F.adaptive_max_pool2d(x(2, 3, 7, n + 3), (3, 2))
F.interpolate(x(2, 3, 5, n + 1), scale_factor=2, mode="nearest")
F.interpolate(x(2, 3, 5, n + 1), size=(9, 7), mode="bilinear")
F.interpolate(x(2, 3, 5, n + 1), size=(9, 7), mode="bicubic", align_corners=True)
F.interpolate(x(2, 3, n + 1), size=11, mode="linear")
F.grid_sample(x(2, 3, 5, n + 1), x(2, 4, 3, 2), align_corners=False)
F.lp_pool2d(p(2, 3, 6, n + 3), 2, 2)
"""

_ATTENTION = """
F.scaled_dot_product_attention(x(2, 3, n, 8), x(2, 3, n, 8), x(2, 3, n, 8))
F.scaled_dot_product_attention(x(2, 2, n + 1, 33), x(2, 2, 19, 33), x(2, 2, 19, 17))
F.scaled_dot_product_attention(x(1, 2, n, 64), x(1, 2, n, 64), x(1, 2, n, 64), is_causal=True)
F.scaled_dot_product_attention(x(2, 2, 9, 16), x(2, 2, n + 1, 16), x(2, 2, n + 1, 16), b(9, n + 1))
F.scaled_dot_product_attention(x(1, 2, n + 1, 5), x(1, 2, 6, 5), x(1, 2, 6, 5), x(n + 1, 6))
F.scaled_dot_product_attention(x(2, 2, n + 1, 9), *[x(2, 2, 21, 9)] * 2, x(n + 1, 21).detach())
F.scaled_dot_product_attention(x(1, 4, 7, n + 1), x(1, 2, 7, n + 1), x(1, 2, 7, 9), enable_gqa=True)
torch.rnn_tanh(x(3, 2, n + 1), x(1, 2, 5), [x(5, n + 1), x(5, 5), x(5), x(5)], *rnn)
torch.lstm(x(3, 2, n + 1), [x(1, 2, 5), x(1, 2, 5)], [x(20, n + 1), x(20, 5), x(20), x(20)], *rnn)
torch.gru(x(3, 2, 4), x(1, 2, n + 1), [x(3 * n + 3, 4), x(3 * n + 3, n + 1)], False, *rnn[1:])
"""

_IN_PLACE = """
x(n).add_(x(n))
x(3, n).mul_(x(n))
x(3, n).copy_(x(3, n).to(torch.float32))
x(3, n).copy_(x(n, 3).t())
x(3, n).fill_(2)
x(3, n).zero_()
x(3, n)[:, ::2].add_(1)
x(5, n + 1)[1:4, 1:].copy_(x(3, n))
x(5, n + 1)[i(5, 3)].mul_(2)
x(3, n).t().add_(x(n, 3))
x(n, 3).transpose(0, 1).copy_(x(3, n))
x(3, n).masked_fill_(b(3, n), 1)
x(n + 1, 3).index_add_(0, i(n + 1, 4), x(4, 3))
torch.add(x(3, n), x(3, n), out=x(3, n))
x(4, n).__setitem__((slice(1, 3), slice(None, None, 2)), 1)
x(4, n).to(torch.float64)
x(4, n).to(torch.int32)
x(4, n).to(torch.bfloat16)
x(4, n).to(torch.bool)
x(4, n) > x(4, n)
x(4, n) == x(n)
torch.zeros_like(x(4, n))
torch.full((n, 3), 2, dtype=x(1).dtype)
torch.arange(n).to(x(1).dtype)
torch.eye(n, dtype=x(1).dtype)
"""

_RANDOM = """
torch.rand(n)
torch.randn(n)
torch.randn(3, n)
torch.randint(0, 9, (n,))
torch.randperm(n)
x(n).uniform_(-1, 2)
x(3, n).normal_(1, 2)
x(n).bernoulli_(0.3)
x(n).exponential_()
torch.bernoulli(p(n))
torch.multinomial(p(3, n + 2), 2)
torch.normal(x(n), p(n))
torch.poisson(p(n))
"""

_LINALG = """
torch.linalg.solve_triangular(x(n, n), x(n, 3), upper=True)
torch.linalg.det(x(n, n))
torch.linalg.inv(x(n, n) + 9 * torch.eye(n, dtype=x(1).dtype))
torch.trace(x(n, n))
torch.kron(x(n, 2), x(3, n))
torch.cross(x(n, 3), x(n, 3), dim=1)
torch.linalg.matrix_power(x(n, n), 3)
"""


def _rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if line]


FAMILIES: dict[str, tuple[list[str], list[str], bool]] = {
    "matrix": (_rows(_MATRIX), NUMBERS, True),
    "linear": (_rows(_FLOAT_MATRIX), REAL, True),
    "reduce": (_rows(_REDUCE), ALL, True),
    "float reduce": (_rows(_FLOAT_REDUCE), REAL, True),
    "pointwise": (_rows(_POINTS), REAL, True),
    "move": (_rows(_MOVES), ALL, True),
    "scatter": (_rows(_SCATTERS), ALL, True),
    "order": (_rows(_ORDER), [*REAL, *INTEGERS, "bool"], False),
    "conv": (_rows(_CONVS), REAL, True),
    "attention": (_rows(_ATTENTION), REAL, True),
    "in place": (_rows(_IN_PLACE), ALL, False),
    "random": (_rows(_RANDOM), ["float32", "float64", "bfloat16"], False),
    "linalg": (_rows(_LINALG), ["float32", "float64"], True),
}
"""Expressions, dtypes, and whether they also run backwards."""
