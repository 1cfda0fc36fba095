"""Calls large enough to be split among threads, as expressions (see `sized`); `n` is not used."""

from __future__ import annotations

_REAL = ("float32", "float64", "bfloat16", "float16")
_SOME = ("float32", "bfloat16")

WORK: dict[str, tuple[str, ...]] = {
    "x(300007).sum()": (*_REAL, "int64", "complex64"),
    "x(700, 513).sum(0)": _REAL,
    "x(700, 513).sum(1)": _REAL,
    "x(3, 70001).sum(1)": _SOME,
    "x(300007).mean()": _REAL,
    "x(257, 1025).var(1)": _SOME,
    "x(300007).norm()": _SOME,
    "x(300007).prod()": ("float32",),
    "x(300007).argmax()": _SOME,
    "x(300007).amax(0)": ("float32", "int64"),
    "F.softmax(x(300, 1025), -1)": _SOME,
    "F.softmax(x(1025, 300), 0)": _SOME,
    "F.log_softmax(x(5, 70001), -1)": ("float32",),
    "F.layer_norm(x(600, 771), (771,), x(771), x(771))": _REAL,
    "F.rms_norm(x(600, 771), (771,), x(771))": _SOME,
    "F.group_norm(x(8, 32, 33, 33), 8, x(32), x(32))": _SOME,
    "F.batch_norm(x(16, 33, 29, 29), None, None, x(33), x(33), True)": _SOME,
    "F.cross_entropy(x(700, 1031), i(1031, 700))": _SOME,
    "F.mse_loss(x(300007), x(300007))": ("float32",),
    "F.gelu(x(300007))": _SOME,
    "x(300, 1001) * x(1001) + x(300, 1)": _SOME,
    "x(65, 3) @ x(3, 65)": _REAL,
    "x(257, 301) @ x(301, 129)": (*_REAL, "int32", "int64", "complex64", "complex128"),
    "x(257, 301).T @ x(257, 129)": _REAL,
    "x(129, 2049) @ x(130, 2049).T": _REAL,
    "x(1, 3001) @ x(3001, 700)": _REAL,
    "x(700, 3001) @ x(3001)": _REAL,
    "x(9, 20011) @ x(20011, 11)": _SOME,
    "x(40, 65, 33) @ x(40, 33, 70)": _SOME,
    "x(6, 300, 64) @ x(64, 200)": _SOME,
    "F.linear(x(512, 384), x(777, 384), x(777))": _REAL,
    "F.conv2d(x(4, 16, 30, 31), x(24, 16, 3, 3), x(24), padding=1)": _SOME,
    "F.conv2d(x(2, 3, 65, 67), x(32, 3, 7, 7), stride=2, padding=3)": _SOME,
    "F.conv2d(x(4, 64, 14, 14), x(96, 64, 1, 1))": _SOME,
    "F.conv2d(x(4, 33, 28, 28), x(33, 1, 3, 3), groups=33, padding=1)": ("float32",),
    "F.conv2d(x(3, 8, 30, 30), x(12, 4, 3, 3), groups=2, dilation=2)": ("float32",),
    "F.conv1d(x(4, 16, 1000), x(24, 16, 5))": ("float32",),
    "F.conv3d(x(1, 4, 9, 20, 20), x(8, 4, 3, 3, 3))": ("float32",),
    "F.conv_transpose2d(x(3, 16, 14, 14), x(16, 8, 4, 4), stride=2, padding=1)": ("float32",),
    "F.max_pool2d(x(8, 32, 30, 30), 3, 2, 1)": _SOME,
    "F.avg_pool2d(x(8, 32, 30, 30), 3, 2, 1)": _SOME,
    "F.interpolate(x(4, 8, 30, 30), size=(47, 53), mode='bilinear')": ("float32",),
    "F.scaled_dot_product_attention(x(2, 4, 130, 64), x(2, 4, 130, 64), x(2, 4, 130, 64))": _REAL,
    "F.scaled_dot_product_attention(*[x(2, 4, 200, 40)] * 3, is_causal=True)": _SOME,
    "x(300007).sort()": ("float32", "int64", "bfloat16"),
    "x(300, 1001).sort(1)": ("float32",),
    "x(300, 1001).topk(7, 1)": ("float32",),
    "x(1000, 65).scatter_add(0, i(1000, 5000, 65), x(5000, 65))": _SOME,
    "x(1000, 65).index_add(0, i(1000, 9000), x(9000, 65))": _SOME,
    "x(1000, 65).index_put((i(1000, 9000),), x(9000, 65), accumulate=True)": _SOME,
    "x(300, 300).index_put((i(300, 90000), i(300, 90000)), x(90000), accumulate=True)": _SOME,
    "x(300007).cumsum(0)": (*_REAL, "int64"),
    "x(300, 1001).cumsum(1)": _SOME,
    "x(1001, 300).cumsum(0)": _SOME,
    "x(300007).cumprod(0)": ("float32",),
    "F.embedding(i(1000, 30, 400), x(1000, 65))": _SOME,
    "F.embedding_bag(i(1000, 300, 40), x(1000, 65))": ("float32",),
    "torch.lstm(x(30, 8, 64), [x(1, 8, 96)] * 2, [x(384, 64), x(384, 96)], False, *rnn[1:])": (
        "float32",
    ),
    "x(3000001) + x(3000001)": ("float32",),
    "x(4200001).clone()": ("float32",),
    "x(1025, 2051).t().clone()": ("float32", "float64", "bfloat16", "int8"),
    "torch.randn(300007)": ("float32",),
    "torch.rand(300007)": ("float32",),
    "torch.randperm(30007)": ("float32",),
    "x(300007).exponential_()": ("float32",),
    "x(300007).bernoulli_(0.3)": ("float32",),
}
"""Expressions and the dtypes they are computed in; floating ones run backwards too."""
_FORWARD_ONLY = ("rand", "_(", "arg", "sort", "prod")


def runs_backward(row: str, dtype: str) -> bool:
    """Whether gradients of a row are computed too."""
    return dtype in _REAL and not any(word in row for word in _FORWARD_ONLY)
