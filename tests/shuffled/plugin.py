"""The plugin for pytest: runs tests in another order, and writes down what happened.

    python -m pytest -p tests.shuffled.plugin --shuffle-seed 3 --shuffle-log F tests/loops

Modules are shuffled, then the tests in each (a module's tests stay together, so that its fixtures
are made once). `--shuffle-share 0.5` runs only a part of them, as a worker of many does.
`--shuffle-list F` runs exactly the tests that a file names, in its order.
The log has one line of JSON per event: a test begins, fails, leaves the process changed.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.shuffled.watched import differences, state


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("shuffled")
    group.addoption("--shuffle-seed", type=int, default=0, help="the order; 0: as it was")
    group.addoption("--shuffle-share", type=float, default=1.0, help="the part that runs")
    group.addoption("--shuffle-list", default="", help="a file: these tests, in this order")
    group.addoption("--shuffle-log", default="", help="where events are written")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--shuffle-log"):
        config.pluginmanager.register(Log(Path(config.getoption("--shuffle-log"))), "shuffled-log")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[Any]) -> None:
    listed, seed = config.getoption("--shuffle-list"), config.getoption("--shuffle-seed")
    if listed:
        by_name = {item.nodeid: item for item in items}
        wanted = Path(listed).read_text().splitlines()
        items[:] = [by_name[name] for name in wanted if name in by_name]
    elif seed:
        items[:] = shuffled(items, seed, config.getoption("--shuffle-share"))


def shuffled(items: list[Any], seed: int, share: float = 1.0) -> list[Any]:
    """The items (anything with a `nodeid`) by module in another order, and so within each."""
    rng = random.Random(seed)
    modules: dict[str, list[Any]] = {}
    for item in items:
        modules.setdefault(item.nodeid.partition("::")[0], []).append(item)
    names = list(modules)
    rng.shuffle(names)
    found = []
    for name in names:
        mine = modules[name]
        rng.shuffle(mine)
        found += mine if share >= 1 else mine[: max(1, round(share * len(mine)))]
    return found


class Log:
    """Writes events as they come, so that a crash leaves the name of the test it was in."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", buffering=1)
        self._before: dict[str, object] | None = None
        self._blame: dict[str, str] = {}

    def _write(self, event: str, **more: object) -> None:
        self._file.write(json.dumps({"event": event, **more}) + "\n")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._write("start", test=nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self._write("fail", test=report.nodeid, when=report.when, text=_last_lines(report))

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self._write("fail", test=report.nodeid, when="collect", text=_last_lines(report))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> Generator[None, Any, Any]:
        if self._before is None:
            self._before, self._blame = state(), {}
        result = yield
        changed = differences(self._before, state())
        for name in changed:
            self._blame.setdefault(name, item.nodeid)
        # What a fixture of the module holds is put back when the module ends.
        if nextitem is None or nextitem.path != item.path:
            for name, values in changed.items():
                self._write("left", test=self._blame[name], name=name, values=values)
            self._before = None
        return result

    def pytest_sessionfinish(self) -> None:
        self._write("end")


def _last_lines(report: Any) -> str:
    text = str(report.longrepr)
    told = [line for line in text.splitlines() if line.startswith("E ")]
    return "\n".join(told[-3:] or text.splitlines()[-3:])[:600]


if __name__ == "__main__":
    sys.exit("this is a plugin: run `python -m tests.shuffled`")
