"""Limits of the source: sizes, cycles, and habits that cost readers or users dearly."""

from pathlib import Path

import pytest

from tests.support.structure import (
    MAX_FILE_LINES,
    MAX_FOLDER_FILES,
    MAX_FUNCTION_LINES,
    MAX_WINDOW_LINES,
    Check,
    ability_probes,
    assert_none,
    crowded_folders,
    empty_bodies,
    environment_readers,
    hidden_imports,
    import_cycles,
    load,
    long_files,
    long_functions,
    long_windows,
    loose_todos,
    plant,
    repeated_classes,
    torch_imports,
    unsafe_calls,
)

LUCERNE = Path(__file__).parents[1] / "lucerne"

CHECKS: list[Check] = [
    long_files,
    long_functions,
    long_windows,
    repeated_classes,
    import_cycles,
    hidden_imports,
    environment_readers,
    ability_probes,
    loose_todos,
    empty_bodies,
    torch_imports,
    unsafe_calls,
]


def function_of(lines: int) -> str:
    docstring = '    """First line.\n\n    Last line.\n    """\n'
    return "def f():\n" + docstring + "    x = 1\n" * lines


# Every construct here is allowed; each check must leave it alone.
CLEAN = {
    "__init__.py": "from lucerne._src.base.config import home as home\n",
    "_src/base/config.py": (
        "import os\nhome = os.environ.get('LUCERNE_HOME') or os.getenv('HOME')\n"
    ),
    "_src/base/full.py": "x = 1\n" * MAX_FILE_LINES,
    "_src/base/tall.py": function_of(MAX_FUNCTION_LINES),
    "_src/base/notes.py": "# TODO(#12): name it\nTODOS = 3\n",
    "_src/base/protocols.py": (
        "from abc import abstractmethod\n"
        "from typing import Generic, Protocol, TypeVar, overload\n"
        "T = TypeVar('T')\n"
        "class Box(Protocol[T]):\n"
        "    def get(self) -> T: ...\n"
        "class Base:\n"
        "    @abstractmethod\n"
        "    def get(self): ...\n"
        "    def close(self):\n"
        "        '''Nothing to close: the buffer is borrowed.'''\n"
        "@overload\n"
        "def f(x: int) -> int: ...\n"
        "@overload\n"
        "def f(x: str) -> str: ...\n"
        "def f(x): return x\n"
    ),
    "_src/backends/__init__.py": (
        "import importlib\n"
        "def get(name): return importlib.import_module(f'lucerne._src.backends.{name}')\n"
        "def cpu(): return importlib.import_module('lucerne._src.backends.cpu')\n"
    ),
    "_src/backends/contract/backend.py": "class Backend:\n    def fuses(self): return False\n",
    "_src/backends/cpu/__init__.py": "from lucerne._src.backends import get\n",
    "_src/ops/__init__.py": (
        "from lucerne._src.ops import view\nfrom lucerne._src.ops.reduce import total\n"
    ),
    "_src/ops/reduce.py": "from . import view\ndef total(): return view\n",
    "_src/ops/view.py": "def lu(x):\n    import scipy.linalg\n    return scipy.linalg.lu(x)\n",
    "_src/cli.py": "def main():\n    import lucerne._src.ops.view\n",
    "nn.py": (
        "import json\nimport pickle\n"
        "def evaluate(model, text):\n"
        "    model.eval()\n"
        "    pickle.dumps(model)\n"
        "    return json.loads(text)\n"
    ),
}

# check, file, text, line of the one problem, part of its message
PLANTED: list[tuple[Check, str, str, int, str]] = [
    (long_files, "_src/ops/view.py", "x = 1\n" * (MAX_FILE_LINES + 1), 801, "801 lines"),
    (long_functions, "_src/ops/view.py", function_of(MAX_FUNCTION_LINES + 1), 1, "f has 101 lines"),
    (
        long_functions,
        "_src/ops/view.py",
        "class C:\n    async def g(self):\n" + "        x = 1\n" * (MAX_FUNCTION_LINES + 1),
        2,
        "g has 101 lines",
    ),
    (
        import_cycles,
        "_src/ops/view.py",
        "import lucerne._src.ops.reduce",
        1,
        "lucerne._src.ops.view -> ",
    ),
    (
        import_cycles,
        "_src/ops/view.py",
        "def f():\n    from .reduce import total",
        2,
        "ops.reduce -> ",
    ),
    (
        import_cycles,
        "_src/ops/view.py",
        "from lucerne._src.ops import total",
        1,
        "lucerne._src.ops -> ",
    ),
    (import_cycles, "nn.py", "import lucerne.nn", 1, "lucerne.nn -> lucerne.nn"),
    (hidden_imports, "_src/ops/view.py", "def f():\n    import json", 2, "import of json"),
    (
        hidden_imports,
        "_src/ops/view.py",
        "class C:\n  def f(s):\n    from ..base import x",
        3,
        "base",
    ),
    (hidden_imports, "nn.py", "import importlib\nimportlib.import_module(name)", 2, "computed"),
    (hidden_imports, "nn.py", "f = lambda: __import__('json')", 1, "import of json"),
    (environment_readers, "nn.py", "import os\nx = os.environ['HOME']", 2, "environ"),
    (environment_readers, "nn.py", "import os as system\nx = system.getenv('A')", 2, "getenv"),
    (environment_readers, "nn.py", "from os import environ as e", 1, "environ"),
    (loose_todos, "nn.py", "x = 1\n# TODO: later", 2, "issue number"),
    (loose_todos, "nn.py", "'''FIXME(somebody)'''", 1, "issue number"),
    (empty_bodies, "nn.py", "def f():\n    pass", 1, "f has no body"),
    (empty_bodies, "nn.py", "class C:\n    def f(self):\n        'Why.'\n        pass", 2, "f has"),
    (empty_bodies, "nn.py", "class C(Base):\n    def f(self): ...", 2, "f has no body"),
    (
        long_windows,
        "nn.py",
        "class C:\n" + "    x = 1\n" * MAX_WINDOW_LINES,
        1,
        "belongs into _src",
    ),
    (ability_probes, "nn.py", "x = 1\ny = getattr(x, 'fuses', None)", 2, "has a default"),
    (repeated_classes, "_src/ops/view.py", "class Box: x = 1", 1, "_src/base/protocols.py too"),
    (torch_imports, "nn.py", "import torch", 1, "torch"),
    (torch_imports, "nn.py", "from torch.nn import functional as F", 1, "torch.nn"),
    (torch_imports, "nn.py", "def f():\n    import torch.fx", 2, "torch.fx"),
    (torch_imports, "cli.py", "import importlib as i\ni.import_module('torch')", 2, "torch"),
    (unsafe_calls, "nn.py", "x = eval('1')", 1, "eval"),
    (unsafe_calls, "nn.py", "import builtins\nrun = builtins.eval", 2, "eval"),
    (unsafe_calls, "nn.py", "import pickle\npickle.load(f)", 2, "pickle"),
    (unsafe_calls, "nn.py", "import pickle as p\np.loads(b)", 2, "pickle"),
    (unsafe_calls, "nn.py", "from pickle import loads", 1, "pickle"),
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_package_keeps_rule(check: Check) -> None:
    assert_none(check(load(LUCERNE)))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_clean_package_passes(check: Check, tmp_path: Path) -> None:
    assert_none(check(plant(tmp_path, CLEAN)))


@pytest.mark.parametrize(("check", "file", "text", "line", "part"), PLANTED)
def test_planted_violation_is_caught(
    check: Check, file: str, text: str, line: int, part: str, tmp_path: Path
) -> None:
    [problem] = check(plant(tmp_path, CLEAN | {file: text}))
    assert problem.startswith(f"lucerne/{file}:{line}: ")
    assert part in problem


def test_every_check_has_a_planted_violation() -> None:
    assert {row[0] for row in PLANTED} == set(CHECKS)


def test_no_room_is_crowded(tmp_path: Path) -> None:
    assert_none(crowded_folders(load(LUCERNE)))
    files = {f"{room}/m{k}.py": "" for room in ("_src/ir", "nn/modules") for k in range(99)}
    few = {f"_src/base/m{k}.py": "" for k in range(MAX_FOLDER_FILES - 1)}
    [problem] = crowded_folders(plant(tmp_path, files | few))
    assert problem.startswith("lucerne/_src/ir: 100 modules")


def test_two_cycles_are_both_named(tmp_path: Path) -> None:
    files = {
        "a.py": "import lucerne.b",
        "b.py": "import lucerne.a",
        "c.py": "import lucerne.d",
        "d.py": "import lucerne.c",
    }
    problems = import_cycles(plant(tmp_path, files))
    assert len(problems) == 2


def test_assert_none_fails_and_shows_the_problems() -> None:
    with pytest.raises(AssertionError, match=r"lucerne/nn\.py:1: too long"):
        assert_none(["lucerne/nn.py:1: too long"])
