"""The tool that moves modules: what follows a move, and that it sees what is no move."""

from __future__ import annotations

import pytest

from tools.rooms import move
from tools.rooms.move import Rewrite, in_text
from tools.rooms.same import plain

NAMES = {"lucerne.a.reach": "lucerne.a.guards.reachable", "lucerne.a.tree": "lucerne.a.trace.tree"}
ROWS = [
    ("from lucerne.a import reach\nreach.f()\n",
     "from lucerne.a.guards import reachable\nreachable.f()\n"),
    ("from lucerne.a import reach, x\nreach.f(x)\n",
     "from lucerne.a.guards import reachable\nfrom lucerne.a import x\nreachable.f(x)\n"),
    ("from lucerne.a import reach as r\nr.f()\n",
     "from lucerne.a.guards import reachable as r\nr.f()\n"),
    ("from lucerne.a import reach\nreachable = reach.f()\n",
     "from lucerne.a.guards import reachable as reach\nreachable = reach.f()\n"),
    ("from lucerne.a import tree as tree\n", "from lucerne.a.trace import tree as tree\n"),
    ("from lucerne.a.reach import Reach\n", "from lucerne.a.guards.reachable import Reach\n"),
    ("import lucerne.a.reach\nlucerne.a.reach.f()\n",
     "import lucerne.a.guards.reachable\nlucerne.a.guards.reachable.f()\n"),
    ("import lucerne as lu\nlu.a.reach.f()\n",
     "import lucerne as lu\nlu.a.guards.reachable.f()\n"),
    ('x = "lucerne.a.reach.f", "a/reach.py"  # see a/reach.py\n',
     'x = "lucerne.a.guards.reachable.f", "a/guards/reachable.py"  # see a/guards/reachable.py\n'),
    ('x = "from lucerne.a import reach"\n',
     'x = "from lucerne.a.guards import reachable as reach"\n'),
    ("from lucerne.a.reaching import f\n", "from lucerne.a.reaching import f\n"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new"), ROWS, ids=lambda text: text.splitlines()[0][:40])
def test_what_names_a_module_follows_it(old: str, new: str) -> None:
    assert Rewrite(old, NAMES).result() == new
    if "lu." not in old:  # (a chain of attributes: the net of names sees what is missing)
        assert plain(old, NAMES) == plain(new, {})


@pytest.mark.parametrize(
    "new",
    [
        "from lucerne.a.guards import reachable\nreachable.g()\n",
        "from lucerne.a.guards import other as reachable\nreachable.f()\n",
        "from lucerne.a.guards import reachable\nreachable.f()\nx = 1\n",
    ],
)
def test_another_change_is_seen(new: str) -> None:
    assert plain("from lucerne.a import reach\nreach.f()\n", NAMES) != plain(new, {})


def test_windows_are_followed_inside_of_the_package_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(move, "WINDOWS", {"lucerne.a.reach"})
    text = 'from lucerne.a import reach\nx = "lucerne.a.reach", reach\n'
    assert Rewrite(text, NAMES, inside=False).result() == text
    followed = 'from lucerne.a.guards import reachable\nx = "lucerne.a.reach", reachable\n'
    assert Rewrite(text, NAMES).result() == followed


def test_pages_follow_too() -> None:
    assert in_text("see `lucerne/a/reach.py`", NAMES) == "see `lucerne/a/guards/reachable.py`"
