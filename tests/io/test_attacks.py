"""No crafted file is loaded, and none makes anything happen. See attacks.py."""

from __future__ import annotations

import io
import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import lucerne
from lucerne.serialization import LoadError
from tests.io import attacks
from tests.io.craft import call, checkpoint, pickle_of, tensor

ROOT = Path(__file__).parents[2]


def test_all_are_refused_and_nothing_happens() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.io.attacks"], cwd=ROOT, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    report = json.loads(ran.stdout)
    assert report["files"] >= 380
    assert sum(report["kinds"].values()) == report["files"]


def test_the_watchdog_bites() -> None:
    """A loader that runs code must not pass: here Python's own, on a harmless call."""
    code = (
        "import io, pickle, zipfile, lucerne\n"
        "from tests.io import attacks, craft\n"
        "def load(f, **k):\n"
        "    return pickle.loads(zipfile.ZipFile(f).read('archive/data.pkl'))\n"
        "lucerne.load = load\n"
        "attacks._warm_up = lambda: None\n"
        "made = {'x': craft.checkpoint(craft.pickle_of(craft.call('os', 'listdir', '/')))}\n"
        "report = attacks.run(made)\n"
        "assert report['loaded'] == ['x: list'], report\n"
        "assert any('os.listdir' in e for e in report['events']), report\n"
        "assert any('pickle.find_class' in e for e in report['events']), report\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_every_gadget_is_one_for_pickle() -> None:
    """The crafted pickles are sound: Python's own machine would do what they say."""

    class Spy(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            found.append((module, name))
            return lambda *args: None

    for module, name, args in attacks.GADGETS:
        found: list[tuple[str, str]] = []
        Spy(io.BytesIO(pickle_of(call(module, name, *args)))).load()
        assert len(found) == 1


def test_the_same_bytes_without_the_trick_load() -> None:
    """Files are refused for what is wrong with them, and not for how they were made."""
    found = lucerne.load(io.BytesIO(checkpoint(pickle_of({"w": tensor()}), attacks.FOUR)))
    assert found["w"].tolist() == [0.0] * 4


def test_attackers_get_no_advice() -> None:
    with pytest.raises(LoadError, match="attack") as caught:
        lucerne.load(io.BytesIO(checkpoint(pickle_of(call("os", "system", "ls")))))
    assert "add_safe_globals" not in str(caught.value)


def test_memory_limit_can_be_raised() -> None:
    wide = checkpoint(pickle_of(tensor(shape=(1 << 26,), strides=(0,))), attacks.FOUR)
    with pytest.raises(LoadError, match="memory_limit"):
        lucerne.load(io.BytesIO(wide))
    assert lucerne.load(io.BytesIO(wide), memory_limit=1 << 30).shape == (1 << 26,)
    many = checkpoint(pickle_of(b"](" + b"]" * 300_000 + b"e"))
    with pytest.raises(LoadError, match="memory_limit"):
        lucerne.load(io.BytesIO(many), memory_limit=1 << 20)
    assert len(lucerne.load(io.BytesIO(many))) == 300_000


def test_deep_values_load() -> None:
    """Depth is no crime where nothing recurses."""
    deep = lucerne.load(io.BytesIO(checkpoint(pickle_of(b"]" + b"\x85" * 100_000))))
    for _ in range(100_000):
        (deep,) = deep
    assert deep == []


def test_text_keys_of_any_number_load() -> None:
    made = {("a", str(n)): n for n in range(20_000)} | {n: n for n in range(20_000)}
    out = io.BytesIO()
    lucerne.save(made, out)
    out.seek(0)
    assert lucerne.load(out) == made
