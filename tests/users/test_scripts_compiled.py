"""Users' programs print the same when their functions, or all their layers, are compiled."""

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")

from tests.users.scripts import REFUSED, WAYS, differences, lucernes, programs  # noqa: E402

pytestmark = pytest.mark.torch

DAILY = [
    ("actor_critic", "forwards"), ("agents", "functions"), ("agents", "forwards"),
    ("distillation", "forwards"), ("preprocessing", "functions"), ("recommender", "functions"),
    ("siamese", "functions"), ("trainer", "functions"), ("trainer", "forwards"),
    ("transfer_learning", "functions"), ("transfer_learning", "forwards"), ("vae", "forwards"),
    ("two_layers", "functions"), ("polynomial", "functions"), ("many_devices", "forwards"),
]  # fmt: skip
NIGHTLY = [
    (name, way)
    for name in programs()
    for way in WAYS
    if (name, way) not in DAILY and (name, way) not in REFUSED
]


@pytest.fixture(autouse=True)
def _torch_as_loaded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in `tests/scripts`: torch as a program finds it, and one thread of it."""
    threads = torch.get_num_threads()
    settings = torch.backends.disable_global_flags.__globals__
    monkeypatch.setitem(settings, "__allow_nonbracketed_mutation_flag", True)
    monkeypatch.setattr(torch.distributions.Distribution, "_validate_args", __debug__)
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize(("name", "way"), DAILY)
def test_compiled(name: str, way: str) -> None:
    assert differences(name, way) == []


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "way"), NIGHTLY)
def test_compiled_at_night(name: str, way: str) -> None:
    assert differences(name, way) == []


def test_the_text_is_changed() -> None:
    source = (
        "import torch\ndef f(x):\n    return x\nclass A:\n    def forward(self, x):\n        pass\n"
    )
    assert '@__import__("lucerne").compile(mode="bitwise")\ndef f' in lucernes(source, "functions")
    forwards = lucernes(source, "forwards")
    assert '\n    @__import__("lucerne").compile(mode="bitwise")\n    def forward' in forwards
    assert lucernes(source, "").count("compile") == 0


def test_a_difference_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.users.scripts.lucernes", lambda source, way: "print('other')")
    assert differences("polynomial", "functions")
