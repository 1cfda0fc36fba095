"""Which primitives a training step of common models runs: what a rule is worth to a user.

A test trains each on the reference device and compares.
"""

from __future__ import annotations

_ALL = frozenset(
    ("amax", "batch_matmul", "cast", "copy", "filled", "gather", "scatter", "sum")
)  # fmt: skip

MODELS: dict[str, frozenset[str]] = {
    "a perceptron": _ALL,
    "a convolutional net": _ALL | {"conv", "conv_weight", "max_pool"},
    "an LSTM": _ALL | {"cat", "index", "index_put"},
    "a GPT": _ALL | {"cat", "counted", "index", "index_put"},
}
