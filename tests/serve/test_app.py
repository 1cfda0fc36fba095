"""The routes, the queue and its limits, without a network."""

from __future__ import annotations

import asyncio
import json
import struct
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lucerne._src.serve.app import App, ServeLimits
from lucerne._src.serve.metrics import Histogram
from tests.serve.client import ask, scaled_body, write_model

INFER = "/v2/models/scaled/infer"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("models")
    for name in ("scaled", "looked", "fixed"):
        write_model(made, name, 1)
    (made / "empty").mkdir()
    return made


def served(
    folder: Path, talk: Callable[[App], Awaitable[Any]], limits: ServeLimits | None = None
) -> Any:
    """Run a talk with a server of this folder."""

    async def whole() -> Any:
        app = App(folder, limits)
        await app.start()
        try:
            return await talk(app)
        finally:
            await app.stop()

    return asyncio.run(whole())


def test_what_the_server_says_of_itself(folder: Path) -> None:
    async def talk(app: App) -> None:
        for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/scaled/ready",
                     "/v2/models/scaled/versions/1/ready", "/v2"):  # fmt: skip
            assert (await ask(app, "GET", path)).status == 200, path
        told = (await ask(app, "GET", "/v2/models/scaled")).json()
        assert told["versions"] == ["1"]
        assert told["inputs"] == [{"name": n, "datatype": "FP32", "shape": [-1, 4]} for n in "xy"]
        assert [o["shape"] for o in told["outputs"]] == [[-1, 4], [-1]]
        index = (await ask(app, "POST", "/v2/repository/index")).json()
        assert [m["name"] for m in index] == ["fixed", "looked", "scaled"]

    served(folder, talk)


def test_results_in_json_and_in_bytes(folder: Path) -> None:
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    want = [x * 2 + 0.5, x.sum(1)]

    async def talk(app: App) -> None:
        asked = {**scaled_body(2), "id": "mine", "outputs": [{"name": "output1"}]}
        answer = (await ask(app, "POST", INFER, asked)).json()
        assert answer["id"] == "mine"
        [only] = answer["outputs"]
        assert (only["name"], only["data"]) == ("output1", want[1].tolist())
        inputs = [{"name": n, "datatype": "FP32", "shape": [2, 4],
                   "parameters": {"binary_data_size": 32}} for n in "xy"]  # fmt: skip
        head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
        raw = head + x.tobytes() + np.full(8, 0.5, np.float32).tobytes()
        length = {"inference-header-content-length": str(len(head))}
        answer = await ask(app, "POST", INFER, raw, length)
        at = int(answer.headers["inference-header-content-length"])
        told = json.loads(answer.body[:at])["outputs"]
        assert [o["parameters"]["binary_data_size"] for o in told] == [32, 8]
        got = np.frombuffer(answer.body[at:], np.float32)
        assert got.tolist() == [*want[0].reshape(-1), *want[1]]

    served(folder, talk)


def _changed(**change: Any) -> dict[str, Any]:
    body = scaled_body(2)
    body["inputs"][0].update(change)
    return body


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        (b"{", 400, "not JSON"),
        (b"[" * 100000, 400, "not JSON"),
        ({"inputs": 3}, 400, "inputs"),
        ({"inputs": [3]}, 400, "name"),
        ({"inputs": scaled_body(2)["inputs"][:1]}, 400, "the inputs are x, y"),
        ({"inputs": scaled_body(2)["inputs"][:1] * 2}, 400, "given twice"),
        (_changed(datatype="BYTES"), 400, "datatype 'BYTES'"),
        (_changed(datatype="INT64"), 400, "its data are not"),
        (_changed(shape=[2, -4]), 400, "sizes"),
        (_changed(shape=[1 << 39, 4]), 400, "its data are not"),
        (_changed(shape=[4, 2]), 400, r"is FP32\[-1, 4\], not FP32\[4, 2\]"),
        (_changed(data=["a"] * 8), 400, "its data are not"),
        (_changed(data=None), 400, "its data are not"),
        (_changed(parameters={"binary_data_size": 32}), 400, "is not 32 bytes"),
        (_changed(parameters=[1]), 400, "an object"),
        (scaled_body(65), 400, "at most 64"),
        ({**scaled_body(1), "outputs": [{"name": "none"}]}, 400, "no output 'none'"),
        (scaled_body(20000), 413, "at most"),
    ],
)
def test_bodies_that_are_refused(folder: Path, body: Any, status: int, text: str) -> None:
    async def talk(app: App) -> None:
        answer = await ask(app, "POST", INFER, body)
        assert answer.status == status
        with pytest.raises(AssertionError, match=text):
            raise AssertionError(answer.json()["error"])
        assert (await ask(app, "POST", INFER, scaled_body(1))).status == 200

    served(folder, talk, ServeLimits(most_bytes=1 << 18))


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/v2/models/none"), ("POST", "/v2/models/none/infer"), ("GET", INFER), ("GET", "/x"),
     ("GET", "/v2/models/scaled/versions/7"), ("POST", "/v2/repository/models/none/load"),
     ("GET", "/v2/models/scaled/other"), ("DELETE", "/v2")],
)  # fmt: skip
def test_what_is_not_there_is_404(folder: Path, method: str, path: str) -> None:
    async def talk(app: App) -> None:
        assert (await ask(app, method, path)).status == 404

    served(folder, talk)


def test_bytes_that_do_not_fit_their_head(folder: Path) -> None:
    async def talk(app: App) -> None:
        for length, body in (("9" * 30, b"{}"), ("x", b"{}"), ("2", b"{}more")):
            head = {"inference-header-content-length": length}
            assert (await ask(app, "POST", INFER, body, head)).status == 400
        empty = json.dumps({"inputs": []}).encode()
        head = {"inference-header-content-length": str(len(empty))}
        answer = await ask(app, "POST", INFER, empty + struct.pack("<f", 1.0), head)
        assert "belong to no input" in answer.json()["error"]

    served(folder, talk)


# ---- together ------------------------------------------------------------------------------------


def _calls(text: str, name: str) -> float:
    [line] = [row for row in text.splitlines() if row.startswith(name)]
    return float(line.rpartition(" ")[2])


def test_requests_that_come_together_run_together(folder: Path) -> None:
    async def talk(app: App) -> None:
        many = [ask(app, "POST", INFER, scaled_body(1 + n % 3, 100.0 * n)) for n in range(20)]
        answers = await asyncio.gather(*many)
        for n, answer in enumerate(answers):
            rows = 1 + n % 3
            x = 100.0 * n + np.arange(4 * rows, dtype=np.float32)
            assert answer.json()["outputs"][0]["data"] == (x * 2 + 0.5).tolist()
        text = app.metrics.text()
        assert _calls(text, 'lucerne_batched_requests_total{model="scaled"}') == 20
        assert _calls(text, 'lucerne_batch_rows_count{model="scaled"}') <= 8
        assert _calls(text, 'lucerne_batch_rows_sum{model="scaled"}') == 39
        assert _calls(text, 'lucerne_requests_total{model="scaled",code="200"}') == 20
        assert (await ask(app, "GET", "/metrics")).body.decode().count("# TYPE") == 7

    served(folder, talk, ServeLimits(most_rows=8, wait=0.5))


def test_a_bad_request_fails_alone(folder: Path) -> None:
    async def talk(app: App) -> None:
        bodies = [
            {"inputs": [{"name": "at", "datatype": "INT64", "shape": [1], "data": [n]}]}
            for n in (1, 99, 3)
        ]
        path = "/v2/models/looked/infer"
        found = await asyncio.gather(*(ask(app, "POST", path, b) for b in bodies))
        assert [a.status for a in found] == [200, 400, 200]

    served(folder, talk, ServeLimits(wait=0.2))


def test_a_model_of_one_size_runs_one_by_one(folder: Path) -> None:
    async def talk(app: App) -> None:
        body = {"inputs": [{"name": "input", "datatype": "FP32", "shape": [2, 3],
                            "data": [[-1, 0, 1], [2, -3, 4]]}]}  # fmt: skip
        found = await asyncio.gather(
            *(ask(app, "POST", "/v2/models/fixed/infer", body) for _ in range(3))
        )
        assert [a.json()["outputs"][0]["data"] for a in found] == [[0, 0, 1, 2, 0, 4]] * 3

    served(folder, talk)


class _Slow:
    """Holds a program until it is told to go on."""

    def __init__(self, app: App) -> None:
        self.go, self.program = threading.Event(), app.repository.served["scaled"].program
        self.ran: list[int] = []
        self._run = self.program.run
        self.program.run = self._wait  # type: ignore[method-assign]

    def _wait(self, arrays: Any) -> Any:
        self.go.wait(10)
        self.ran.append(len(arrays[0]))
        return self._run(arrays)


def test_a_full_queue_is_429_and_a_late_answer_504(folder: Path) -> None:
    async def talk(app: App) -> None:
        slow = _Slow(app)
        running = asyncio.ensure_future(ask(app, "POST", INFER, scaled_body(1)))
        await asyncio.sleep(0.05)
        waiting = [asyncio.ensure_future(ask(app, "POST", INFER, scaled_body(1))) for _ in "ab"]
        await asyncio.sleep(0.05)
        assert (await ask(app, "POST", INFER, scaled_body(1))).status == 429
        late = [a.status for a in await asyncio.gather(running, *waiting)]
        assert late == [504] * 3
        slow.go.set()
        assert (await ask(app, "POST", INFER, scaled_body(3))).status == 200
        assert slow.ran == [1, 3]  # what nobody waited for any more was left out

    served(folder, talk, ServeLimits(most_rows=1, most_waiting=2, seconds=0.4))


def test_a_client_that_leaves_is_not_computed_for(folder: Path) -> None:
    async def talk(app: App) -> None:
        slow = _Slow(app)
        first = asyncio.ensure_future(ask(app, "POST", INFER, scaled_body(1)))
        await asyncio.sleep(0.05)
        left = await ask(app, "POST", INFER, scaled_body(2), leaves=0.01)
        slow.go.set()
        assert (left.status, (await first).status) == (0, 200)
        assert slow.ran == [1]
        assert _calls(app.metrics.text(), 'lucerne_requests_total{model="scaled",code="0"}') == 1

    served(folder, talk, ServeLimits(wait=0.0))


# ---- versions and the end ------------------------------------------------------------------------


def test_a_new_version_comes_before_the_old_one_goes(tmp_path: Path) -> None:
    write_model(tmp_path, "scaled", 1, 2.0)

    async def talk(app: App) -> None:
        slow = _Slow(app)
        old = asyncio.ensure_future(ask(app, "POST", INFER, scaled_body(1, 1.0)))
        await asyncio.sleep(0.05)
        write_model(tmp_path, "scaled", 2, 10.0)
        load = asyncio.ensure_future(ask(app, "POST", "/v2/repository/models/scaled/load"))
        while app.repository.served["scaled"].version == "1":
            await asyncio.sleep(0.01)
        new = (await ask(app, "POST", INFER, scaled_body(1, 1.0))).json()
        slow.go.set()
        before = (await old).json()
        assert (await load).json() == {"name": "scaled", "version": "2"}
        assert [a["model_version"] for a in (before, new)] == ["1", "2"]
        assert [a["outputs"][0]["data"][0] for a in (before, new)] == [2.5, 10.5]
        (tmp_path / "scaled" / "3").mkdir()
        (tmp_path / "scaled" / "3" / "model.pt2").write_bytes(b"nothing")
        broken = await ask(app, "POST", "/v2/repository/models/scaled/load")
        assert broken.status == 400
        assert (await ask(app, "GET", "/v2/models/scaled")).json()["versions"] == ["2"]

    served(tmp_path, talk)


def test_what_waits_is_answered_at_the_end(folder: Path) -> None:
    async def whole() -> None:
        app = App(folder, ServeLimits(most_rows=1))
        await app.start()
        asked = [asyncio.ensure_future(ask(app, "POST", INFER, scaled_body(1))) for _ in range(5)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await app.stop()
        assert [a.status for a in await asyncio.gather(*asked)] == [200] * 5
        assert (await ask(app, "POST", INFER, scaled_body(1))).status == 503
        assert (await ask(app, "GET", "/v2/health/ready")).status == 503

    asyncio.run(whole())


def test_histograms_count_what_lies_below() -> None:
    made = Histogram((1, 2))
    for x in (0.5, 1, 1.5, 9):
        made.add(x)
    assert made.lines("n", ()) == [
        'n_bucket{le="1"} 2', 'n_bucket{le="2"} 3', 'n_bucket{le="+Inf"} 4', "n_sum{} 12",
        "n_count{} 4",
    ]  # fmt: skip
