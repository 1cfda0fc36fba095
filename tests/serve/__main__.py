"""A trial of the server: many requests, and clients as bad as clients are.

    python -m tests.serve --requests 10000

A real process, several clients at once. Of a hundred requests about five are killed half-way, two
are read slowly, one has a huge body, one is not JSON; from time to time a new version is loaded,
while requests run. Every answer must be the right one of a version that was served: none may be
lost, none wrong, and the memory of the server must be flat. Needs the extra `serve`.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import psutil

from tests.serve.client import scaled_body, write_model
from tests.serve.test_process import INFER, Running, _ask

CLIENTS = 8
MOST_GROWTH = 0.10
"""Of the server's memory, from a fifth of the trial to its end."""


class Trial:
    """What all clients share."""

    def __init__(self, server: Running, folder: Path, requests: int) -> None:
        self.server, self.folder, self.left = server, folder, requests
        self.lock, self.counts = threading.Lock(), Counter[str]()
        self.seconds: list[float] = []
        self.wrong: list[str] = []
        self.versions = 1
        self.loading = threading.Lock()

    def next(self) -> int:
        with self.lock:
            self.left -= 1
            return self.left

    def client(self, seed: int) -> None:
        chance = random.Random(seed)
        link = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=120)
        while self.next() >= 0:
            kind = chance.choices(
                ("plain", "killed", "slow", "huge", "no JSON"), (91, 5, 2, 1, 1)
            )[0]  # fmt: skip
            self.counts[kind] += 1
            try:
                if kind == "killed":
                    self._killed(chance)
                else:
                    self._asked(link, kind, chance)
            except Exception as error:
                link.close()
                self.wrong.append(f"{kind}: {error!r}")
        link.close()

    def _killed(self, chance: random.Random) -> None:
        raw = json.dumps(scaled_body(2)).encode()
        head = f"POST {INFER} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(raw)}\r\n\r\n".encode()
        with socket.create_connection(("127.0.0.1", self.server.port)) as link:
            link.sendall((head + raw)[: chance.randrange(1, len(head) + len(raw) + 1)])

    def _asked(self, link: http.client.HTTPConnection, kind: str, chance: random.Random) -> None:
        rows, first = chance.randrange(1, 9), float(chance.randrange(1000))
        body = json.dumps(scaled_body(rows, first)).encode()
        expected = {"huge": 413, "no JSON": 400}.get(kind, 200)
        if kind == "huge":
            body = b" " * (1 << 19)
        elif kind == "no JSON":
            body = b"{" + body
        began = time.perf_counter()
        try:
            link.request("POST", INFER, body)
        except (BrokenPipeError, ConnectionResetError):
            if kind != "huge":
                raise
            link.close()  # the server stopped reading, as it says
            return
        answer = link.getresponse()
        if kind == "slow":
            time.sleep(0.2)
        found = answer.read()
        if kind == "plain":
            self.seconds.append(time.perf_counter() - began)
        if kind == "huge":
            link.close()
        if answer.status != expected:
            self.wrong.append(f"{kind}: {answer.status} {found[:200]!r}")
        elif expected == 200:
            self._check(json.loads(found), rows, first)

    def _check(self, answer: dict[str, object], rows: int, first: float) -> None:
        version = int(str(answer["model_version"]))
        outputs = answer["outputs"]
        assert isinstance(outputs, list)
        want = [(first + n) * (version + 1) + 0.5 for n in range(4 * rows)]
        if outputs[0]["data"] != want or version > self.versions:
            self.wrong.append(f"version {version}: {outputs[0]['data'][:4]} is not {want[:4]}")

    def change_version(self) -> None:
        """Write one more version and have it served; the factor of version n is n + 1."""
        self.versions += 1
        write_model(self.folder, "scaled", self.versions, self.versions + 1.0)
        status, text = _ask(self.server.port, "POST", "/v2/repository/models/scaled/load")
        if status != 200:
            self.wrong.append(f"version {self.versions}: {text!r}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.serve", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--requests", type=int, default=10000)
    parser.add_argument("--versions", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        write_model(folder, "scaled", 1, 2.0)
        server = Running(folder, "--max-body-mb", "0.25")
        trial = Trial(server, folder, options.requests)
        memory = psutil.Process(server.process.pid).memory_info
        threads = [threading.Thread(target=trial.client, args=(n,)) for n in range(CLIENTS)]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        marks = [
            options.requests * k // (options.versions + 1) for k in range(options.versions, 0, -1)
        ]
        early = 0
        while any(t.is_alive() for t in threads):
            time.sleep(0.05)
            if not early and trial.left < options.requests * 0.8:
                early = memory().rss
            if marks and trial.left < marks[0]:
                marks.pop(0)
                trial.change_version()
        took, late = time.perf_counter() - began, memory().rss
        status = server.end()
    times = sorted(trial.seconds)
    half, most = (times[len(times) * part // 100] * 1e3 for part in (50, 99))
    growth = late / max(early, 1) - 1
    print(
        f"{options.requests} requests in {took:.1f} s: {dict(trial.counts)}, "
        f"{trial.versions} versions; wrong or lost: {len(trial.wrong)}"
    )
    print(
        f"p50 {half:.1f} ms, p99 {most:.1f} ms; memory {early / 1e6:.0f} -> {late / 1e6:.0f} MB "
        f"({growth:+.1%}); status {status}"
    )
    for line in trial.wrong[:10]:
        print(line)
    return 0 if not trial.wrong and status == 0 and growth <= MOST_GROWTH else 1


if __name__ == "__main__":
    sys.exit(main())
