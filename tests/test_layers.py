"""Imports point down the layers, and nobody knows a concrete backend."""

from pathlib import Path

import pytest

from tests.support.structure import (
    RANKS,
    Check,
    assert_none,
    concrete_backend_imports,
    load,
    plant,
    upward_imports,
)

LUCERNE = Path(__file__).parents[1] / "lucerne"
CHECKS = [upward_imports, concrete_backend_imports]

CLEAN = {
    "__init__.py": "from lucerne.tensor.tensor import Tensor as Tensor\n",
    "base/dtype.py": "import numpy as np\n",
    "ir/graph.py": "from lucerne.base import dtype\n",
    "backends/__init__.py": (
        "import importlib\n"
        "from lucerne.backends.api import Backend as Backend\n"
        "def get(name):\n"
        "    if name == 'cpu':\n"
        "        return importlib.import_module('lucerne.backends.cpu')\n"
        "    return importlib.import_module(f'lucerne.backends.{name}')\n"
    ),
    "backends/api.py": "from lucerne.ir.graph import dtype\nclass Backend: x = 1\n",
    "backends/cpu/__init__.py": "from lucerne.backends.cpu import emit\n",
    "backends/cpu/emit.py": "from ..api import Backend\n",
    "backends/xla/__init__.py": "from lucerne.backends.api import Backend\n",
    "tensor/tensor.py": "from lucerne.backends import get\nclass Tensor: x = 1\n",
    "nn/module.py": "import lucerne.tensor.tensor\nfrom lucerne.optim import sgd\n",
    "optim/sgd.py": "",
}

TYPE_ONLY = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import lucerne.nn.module\n"

UPWARD = [
    ("base/dtype.py", "import lucerne.tensor.tensor", 1, "lucerne.tensor.tensor"),
    ("base/dtype.py", "from ..ir import graph", 1, "lucerne.ir.graph"),
    ("ir/graph.py", "from lucerne import nn", 1, "lucerne.nn"),
    ("ir/graph.py", "import numpy\ndef f():\n    from lucerne.ops import x", 3, "lucerne.ops"),
    ("tensor/tensor.py", TYPE_ONLY, 3, "lucerne.nn.module"),
    ("tensor/tensor.py", "import importlib as i\ni.import_module('lucerne.nn')", 2, "lucerne.nn"),
    ("pipeline.py", "from lucerne.tensor.tensor import Tensor", 1, "lucerne.tensor.tensor"),
    ("nn/module.py", "import lucerne as torch", 1, "lucerne"),
    ("nn/module.py", "from lucerne import Tensor", 1, "lucerne"),
]

CONCRETE = [
    ("tensor/tensor.py", "from lucerne.backends.cpu import emit", 1, "cpu"),
    ("tensor/tensor.py", "from lucerne.backends import cpu", 1, "cpu"),
    ("cli.py", "import importlib\nimportlib.import_module('lucerne.backends.xla')", 2, "xla"),
    ("backends/__init__.py", "from lucerne.backends.cpu import emit", 1, "cpu"),
    ("backends/api.py", "def f():\n    import lucerne.backends.cpu.emit", 2, "cpu"),
    ("backends/xla/__init__.py", "from ..cpu.emit import Backend", 1, "cpu"),
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_package_keeps_rule(check: Check) -> None:
    assert_none(check(load(LUCERNE)))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_clean_package_passes(check: Check, tmp_path: Path) -> None:
    assert_none(check(plant(tmp_path, CLEAN)))


@pytest.mark.parametrize(("file", "text", "line", "target"), UPWARD)
def test_upward_import_is_caught(
    file: str, text: str, line: int, target: str, tmp_path: Path
) -> None:
    [problem] = upward_imports(plant(tmp_path, CLEAN | {file: text}))
    assert problem.startswith(f"lucerne/{file}:{line}: ")
    assert f" may not import {target} (rank " in problem


@pytest.mark.parametrize(("file", "text", "line", "backend"), CONCRETE)
def test_concrete_backend_import_is_caught(
    file: str, text: str, line: int, backend: str, tmp_path: Path
) -> None:
    [problem] = concrete_backend_imports(plant(tmp_path, CLEAN | {file: text}))
    assert problem.startswith(f"lucerne/{file}:{line}: ")
    assert f"backend {backend!r}" in problem


def test_each_layer_may_use_every_lower_one_and_none_above(tmp_path: Path) -> None:
    layers = sorted(RANKS, key=RANKS.__getitem__)
    files = {f"{layer}/__init__.py": "" for layer in layers}
    everything = "".join(f"import lucerne.{layer}\n" for layer in layers)
    for rank, layer in enumerate(layers):
        folder = tmp_path / layer
        problems = upward_imports(plant(folder, files | {f"{layer}/user.py": everything}))
        assert len(problems) == len(layers) - 1 - rank


def test_empty_folder_is_not_a_pass(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nothing would be checked"):
        load(tmp_path)
