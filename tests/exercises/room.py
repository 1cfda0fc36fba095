"""What the exercises share: the list of them, a room that is clean afterwards, and the runner."""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

from lucerne._src.backends.contract import registry
from lucerne._src.ir import op as op_
from lucerne._src.transforms import simplify

HERE = Path(__file__).parent
FILES = {int(path.stem[1:3]): path for path in sorted(HERE.glob("e[0-9][0-9]_*.py"))}


def exercise(number: int) -> ModuleType:
    """The module of an exercise: `start`, `solution`, `check`, and what the start is told."""
    if number not in FILES:
        raise SystemExit(f"there are exercises {min(FILES)} to {max(FILES)}, and no {number}")
    return importlib.import_module(f"tests.exercises.{FILES[number].stem}")


@contextlib.contextmanager
def room() -> Iterator[None]:
    """What an answer registers is taken out again: ops, rules, devices."""
    kept = [(d, dict(d)) for d in (op_._TABLE, op_._CUSTOM, registry._registered)]
    rules = simplify.RULES
    try:
        yield
    finally:
        for live, before in kept:
            live.clear()
            live.update(before)
        simplify.RULES = rules
        simplify.rules_for.cache_clear()


def verdict(number: int, answer: Callable[[], object]) -> str:
    """Nothing if the answer passes, else what is wrong with it."""
    with room():
        try:
            exercise(number).check(answer())
        except Exception as error:
            return f"{type(error).__name__}: {error}".strip()
    return ""


def starting_point(number: int) -> str:
    """The file that a reader begins with: the imports, and `answer`."""
    module = exercise(number)
    imports = [
        ast.unparse(node)
        for node in ast.parse(inspect.getsource(module)).body
        if isinstance(node, (ast.Import, ast.ImportFrom))
    ]
    body = inspect.getsource(module.start).replace("def start(", "def answer(", 1)
    title = (module.__doc__ or "").splitlines()[0]
    return "\n".join([f'"""{title}"""', "", *imports, "", "", body])


def answer_of(path: Path) -> Callable[[], object]:
    """The function `answer` of a reader's file."""
    spec = importlib.util.spec_from_file_location("answer_of_a_reader", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, "answer"):
        raise SystemExit(f"{path} has no function `answer`")
    found: Callable[[], object] = module.answer
    return found
