"""The kernel table: a rule turns a graph node into something that runs.

    @rule("gather")
    def gather(node):
        return Kernel(...)       # or None: this case is not taken, the reference backend runs it

A rule looks at `node.args` (Values with `.meta` where tensors flow in, statics otherwise) and
`node.outputs`; it must return code that does not depend on sizes (pass them in `extra`).

Rules live in one module per family, which is imported when the first op of the family is compiled:
all of them together would take a third of the time of `import lucerne`, and a program uses few.
Therefore `FAMILIES` says what each module has; `rule` refuses a name that is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from lucerne._src.base.process import forks
from lucerne._src.ir.graph import Node

Rule = Callable[[Node], Any]

FAMILIES: dict[str, tuple[str, ...]] = {
    "nn.attention": ("flash_attention", "flash_attention_backward"),
    "nn.classes": ("cross_entropy_classes", "cross_entropy_classes_backward"),
    "nn.conv": ("conv", "conv_input", "conv_weight"),
    "linalg.distances": ("upper_norms",),
    "linalg.factors": (
        "qr_factors", "qr_reflectors", "eigh_factors", "eig_factors", "svd_factors", "ldl_packed",
        "least_squares",
    ),
    "fourier": ("fft_c2c", "fft_r2c", "fft_c2r"),
    "index": ("gather", "scatter", "index", "index_put", "nonzero", "embedding"),
    "join": ("cat", "flip"),
    "linalg.systems": (
        "lu_packed", "lu_checked", "pivots_to_permutation", "tri_solve", "cholesky_factor",
        "cholesky_checked", "inverse_checked", "solve_checked", "linalg.det",
        "scaled_adjoint_inverse",
    ),
    "linalg.triangles": ("tril", "triu", "diag_embed"),
    "linalg.matmul": ("batch_matmul", "nn.functional.linear", "add_product"),
    "move": ("copy", "cast", "clone_as", "filled", "uninitialized", "counted", "padded"),
    "nn.norm": ("layer_norm_backward", "channel_norm", "channel_norm_backward"),
    "nn.optimizers": ("adam_update", "sgd_update", "adagrad_update", "counted_up"),
    "pointwise": ("pointwise",),
    "nn.pool": ("max_pool", "avg_pool", "adaptive_avg_pool", "resample", "resample_back"),
    "random": ("draw", "draw_each", "draw_categories", "counted_draw"),
    "reduce": ("reduction",),
    "nn.rnn": ("lstm_gates", "lstm_gates_backward", "gru_gates", "gru_gates_backward"),
    "scan": ("scan", "linear_scan"),
    "linalg.quantized": ("quantized_linear",),
    "linalg.sparse": ("csr_times_dense", "sampled_products"),
    "sorting": ("binary_search", "sort_along", "top_positions"),
    "nn.taps": ("tap_gather", "tap_scatter", "tap_products"),
    "tile": ("tile_call",),
}  # fmt: skip
"""Modules of this package, and the qualified names of ops (or kinds of ops) they have rules for."""

_HOME = __name__.rpartition(".")[0]
_FAMILY_OF = {name: family for family, names in FAMILIES.items() for name in names}


def load(family: str) -> Any:
    """The module of a family."""
    return forks.import_module(f"{_HOME}.{family}")


class Rules:
    """All rules, by name; a look at one loads its family."""

    def __init__(self) -> None:
        self._entered: dict[str, Rule] = {}

    def __contains__(self, name: object) -> bool:
        return name in _FAMILY_OF

    def __iter__(self) -> Iterator[str]:
        return iter(_FAMILY_OF)

    def __getitem__(self, name: str) -> Rule:
        if name not in self._entered:
            load(_FAMILY_OF[name])
        return self._entered[name]

    def get(self, name: str) -> Rule | None:
        if name not in _FAMILY_OF:
            return None
        return self[name]

    def enter(self, name: str, fn: Rule) -> None:
        family = fn.__module__.removeprefix(f"{_HOME}.")
        if name in self._entered:
            raise ValueError(f"the cpu backend has a rule for {name!r} already")
        if _FAMILY_OF.get(name) != family:
            raise ValueError(f"rules/table.py does not list {name!r} in the family {family!r}")
        self._entered[name] = fn


RULES = Rules()


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Enter a function as the rule of the ops with these qualified names."""

    def decorate(fn: Rule) -> Rule:
        for name in names:
            RULES.enter(name, fn)
        return fn

    return decorate
