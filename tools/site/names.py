"""Which public names the reference has, and on which page."""

from __future__ import annotations

import importlib
import types
from collections.abc import Collection
from typing import Any, NamedTuple


class Namespace(NamedTuple):
    """A module of the reference, and names in it that are not meant for users."""

    name: str
    title: str
    without: str = ""


NAMESPACES = (
    Namespace("nn", "Layers"),
    Namespace("nn.functional", "Layers as functions"),
    Namespace("nn.init", "Initial values"),
    Namespace("nn.utils", "Helpers of modules"),
    Namespace("nn.attention", "Attention"),
    Namespace("optim", "Optimizers"),
    Namespace("optim.lr_scheduler", "Learning-rate schedules"),
    Namespace("amp", "Mixed precision"),
    Namespace("utils.data", "Datasets and loaders"),
    Namespace(
        "utils.checkpoint",
        "Checkpoints in the backward pass",
        "Function Interpreter Op backward enable_grad no_grad saved_tensors_hooks",
    ),
    Namespace("autograd", "Gradients"),
    Namespace("autograd.functional", "Jacobians and products with them"),
    Namespace("autograd.forward_ad", "Dual tensors"),
    Namespace("autograd.graph", "Nodes and hooks"),
    Namespace("func", "Transforms of functions"),
    Namespace("linalg", "Linear algebra"),
    Namespace("fft", "Fourier transforms"),
    Namespace("special", "Special functions"),
    Namespace("sparse", "Sparse tensors", "Invariants SparseTensor"),
    Namespace(
        "nested",
        "Nested tensors",
        "Ragged check_layout entries_of jagged_from make_jagged make_list no_pinned_memory"
        " offsets_of",
    ),
    Namespace("distributions", "Distributions"),
    Namespace("compiler", "The compiler", "Module chosen"),
    Namespace("control_flow", "Control flow", "call_inside flatten rebuild wrap_dim"),
    Namespace("fx", "Programs as graphs"),
    Namespace("export", "Exporting"),
    Namespace("serialization", "Files", "Device TypedStorage UntypedStorage default_place"),
    Namespace(
        "io.safetensors",
        "Files of safetensors",
        "Device FileSource Storage UntypedStorage make_meta move only resolved",
    ),
    Namespace("run_state", "Whole runs in files"),
    Namespace("library", "Operators of your own"),
    Namespace("tiles", "Kernels of your own"),
    Namespace("backends", "Devices"),
    Namespace("profiler", "Profiler"),
    Namespace("utils.benchmark", "Timers"),
    Namespace("testing", "Comparing in tests"),
)

PAGES_OF_THE_TOP = (
    ("creation", "Making tensors", "fills ranges construct outside draws windows create"),
    (
        "elementwise",
        "Element by element",
        "unary arithmetic rounding powers compare bitwise special.functions select complexes"
        " activation",
    ),
    (
        "reductions",
        "Sums, extremes, sorting, statistics",
        "folds extrema statistics quantiles norms scan sorting searching counting calculus softmax"
        " distances segments",
    ),
    (
        "shapes",
        "Shapes, joins, indices",
        "reshape arrange join splitting slicing slices scatter masked advanced copies cast",
    ),
    (
        "matrices",
        "Matrices and signals",
        "matmul legacy matrix_functions einsum systems stft",
    ),
    (
        "layers",
        "Layers and losses",
        "conv pool adaptive rnn normalization batchnorm dropout enum_losses embedding grid patches"
        " padding multihead fake_quantize quantized",
    ),
)
"""Page, title and the modules (last names) whose functions are on it; `tools` has the rest."""


def exported(module: types.ModuleType, without: Collection[str] = ()) -> dict[str, Any]:
    """What users may call or subclass out of a module, by name."""
    found = {}
    for name in sorted({*vars(module), *getattr(module, "__all__", ())}, key=str.lower):
        value = getattr(module, name, None)
        home = getattr(value, "__module__", None) or ""
        public = not name.startswith("_") and name not in without and callable(value)
        if public and home.startswith("lucerne") and not isinstance(value, types.ModuleType):
            found[name] = value
    return found


def namespace(row: Namespace) -> dict[str, Any]:
    module = importlib.import_module(f"lucerne.{row.name}")
    return exported(module, {"Tensor", *row.without.split()})


def of_the_top(names: dict[str, Any]) -> dict[str, tuple[str, dict[str, Any]]]:
    """Page to title and names, for the functions of `lucerne` itself."""
    place = {tail: page for page, _, tails in PAGES_OF_THE_TOP for tail in tails.split()}
    titles = {page: title for page, title, _ in PAGES_OF_THE_TOP}
    titles |= {"inplace": "In place", "tools": "Types, settings, tools"}
    found: dict[str, tuple[str, dict[str, Any]]] = {page: (titles[page], {}) for page in titles}
    for name, value in names.items():
        room, _, tail = (getattr(value, "__module__", "") or "").rpartition(".")
        known = place.get(f"{room.rpartition('.')[2]}.{tail}") or place.get(tail, "tools")
        page = "inplace" if name.endswith("_") else known
        found[page][1][name] = value
    return found


LATE = (
    "autocast compile cond explain GradScaler lazy lazy_mode lazy_report lazy_sync load save vmap"
    " while_loop"
)
"""Names of `lucerne` that are loaded when they are first used."""


def top_names(lucerne: types.ModuleType) -> dict[str, Any]:
    """Functions and classes of `lucerne` but for `Tensor`, which has a page."""
    found = exported(lucerne, {"Tensor"}) | {name: getattr(lucerne, name) for name in LATE.split()}
    return {name: found[name] for name in sorted(found, key=str.lower)}
