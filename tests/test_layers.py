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
    "__init__.py": "from lucerne._src.tensor.tensor import Tensor as Tensor\n",
    "_src/base/dtype.py": "import numpy as np\n",
    "_src/ir/graph.py": "from lucerne._src.base import dtype\n",
    "_src/backends/__init__.py": (
        "import importlib\n"
        "from lucerne._src.backends.api import Backend as Backend\n"
        "def get(name):\n"
        "    if name == 'cpu':\n"
        "        return importlib.import_module('lucerne._src.backends.cpu')\n"
        "    return importlib.import_module(f'lucerne._src.backends.{name}')\n"
    ),
    "_src/backends/api.py": "from lucerne._src.ir.graph import dtype\nclass Backend: x = 1\n",
    "_src/backends/cpu/__init__.py": "from lucerne._src.backends.cpu import emit\n",
    "_src/backends/cpu/emit.py": "from ..api import Backend\n",
    "_src/backends/xla/__init__.py": "from lucerne._src.backends.api import Backend\n",
    "_src/tensor/tensor.py": "from lucerne._src.backends import get\nclass Tensor: x = 1\n",
    "nn/module.py": "import lucerne._src.tensor.tensor\nfrom lucerne.optim import sgd\n",
    "optim/sgd.py": "",
}

TYPE_ONLY = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import lucerne.nn.module\n"

UPWARD = [
    ("_src/base/dtype.py", "import lucerne._src.tensor.tensor", 1, "lucerne._src.tensor.tensor"),
    ("_src/base/dtype.py", "from ..ir import graph", 1, "lucerne._src.ir.graph"),
    ("_src/ir/graph.py", "from lucerne import nn", 1, "lucerne.nn"),
    (
        "_src/ir/graph.py",
        "import numpy\ndef f():\n    from lucerne._src.ops import x",
        3,
        "lucerne._src.ops",
    ),
    ("_src/tensor/tensor.py", TYPE_ONLY, 3, "lucerne.nn.module"),
    (
        "_src/tensor/tensor.py",
        "import importlib as i\ni.import_module('lucerne.nn')",
        2,
        "lucerne.nn",
    ),
    (
        "_src/pipeline.py",
        "from lucerne._src.tensor.tensor import Tensor",
        1,
        "lucerne._src.tensor.tensor",
    ),
    ("nn/module.py", "import lucerne as torch", 1, "lucerne"),
    ("nn/module.py", "from lucerne import Tensor", 1, "lucerne"),
]

CONCRETE = [
    ("_src/tensor/tensor.py", "from lucerne._src.backends.cpu import emit", 1, "cpu"),
    ("_src/tensor/tensor.py", "from lucerne._src.backends import cpu", 1, "cpu"),
    ("cli.py", "import importlib\nimportlib.import_module('lucerne._src.backends.xla')", 2, "xla"),
    ("_src/backends/__init__.py", "from lucerne._src.backends.cpu import emit", 1, "cpu"),
    ("_src/backends/api.py", "def f():\n    import lucerne._src.backends.cpu.emit", 2, "cpu"),
    ("_src/backends/xla/__init__.py", "from ..cpu.emit import Backend", 1, "cpu"),
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
    files = {f"_src/{layer}/__init__.py": "" for layer in layers}
    everything = "".join(f"import lucerne._src.{layer}\n" for layer in layers)
    for rank, layer in enumerate(layers):
        folder = tmp_path / layer
        problems = upward_imports(plant(folder, files | {f"_src/{layer}/user.py": everything}))
        assert len(problems) == len(layers) - 1 - rank


def test_empty_folder_is_not_a_pass(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nothing would be checked"):
        load(tmp_path)
