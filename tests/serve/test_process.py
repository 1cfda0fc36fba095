"""The command itself: a process on a port of this machine."""

from __future__ import annotations

import http.client
import importlib.util
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serve.client import pieces, scaled_body, write_model
from tests.serve.language import write

INFER = "/v2/models/scaled/infer"
needs_uvicorn = pytest.mark.skipif(
    importlib.util.find_spec("uvicorn") is None,
    reason="the extra `serve` (uvicorn) is not installed; tests/serve/test_app.py needs none",
)


def _free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        port: int = made.getsockname()[1]
        return port


def _ask(port: int, method: str, path: str, body: Any = None, seconds: float = 60) -> Any:
    """Status and body."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)
    try:
        link.request(method, path, None if body is None else json.dumps(body))
        answer = link.getresponse()
        return answer.status, answer.read()
    finally:
        link.close()


class Running:
    """A server that has started."""

    def __init__(self, folder: Path | None, *options: str) -> None:
        self.port = _free_port()
        command = [sys.executable, "-m", "lucerne", "serve", "--port", str(self.port)]
        command += [] if folder is None else [str(folder)]
        self.process = subprocess.Popen([*command, *options], stderr=subprocess.PIPE)
        for _ in range(600):
            try:
                if _ask(self.port, "GET", "/v2/health/ready")[0] == 200:
                    return
            except OSError:
                time.sleep(0.1)
            if self.process.poll() is not None:
                break
        self.process.kill()
        raise AssertionError(self.process.communicate()[1].decode())

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=60)
        return self.process.returncode


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    write_model(tmp_path, "scaled", 1)
    made = Running(tmp_path, "--max-wait-ms", "300", "--max-body-mb", "0.1", "--timeout", "20")
    yield made
    if made.process.poll() is None:
        made.process.kill()
        made.process.communicate()


@needs_uvicorn
def test_requests_killed_clients_huge_bodies_and_the_end(server: Running) -> None:
    found: dict[int, Any] = {}

    def one(n: int) -> None:
        found[n] = _ask(server.port, "POST", INFER, scaled_body(1, float(n)))

    threads = [threading.Thread(target=one, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for _ in range(20):  # clients that send half a request, or go before its answer
        with socket.create_connection(("127.0.0.1", server.port)) as link:
            link.sendall(
                f"POST {INFER} HTTP/1.1\r\nhost: x\r\ncontent-length: 900\r\n\r\n{{".encode()
            )
    for thread in threads:
        thread.join(60)
    for n in range(8):
        status, body = found[n]
        assert status == 200
        assert json.loads(body)["outputs"][0]["data"][0] == 2 * n + 0.5
    assert _ask(server.port, "POST", INFER, scaled_body(5000))[0] == 413
    text = _ask(server.port, "GET", "/metrics")[1].decode()
    assert 'lucerne_batched_requests_total{model="scaled"} 8' in text

    late = threading.Thread(target=one, args=(100,))
    late.start()
    time.sleep(0.15)  # it waits for others: the queue's 300 ms
    assert server.end() == 0
    late.join(60)
    assert found[100][0] == 200


@needs_uvicorn
def test_texts_of_a_language_model(tmp_path: Path) -> None:
    server = Running(None, "--language-model", f"tiny={write(tmp_path)}", "--slots", "2")
    try:
        asked = {"model": "tiny", "prompt": "hello", "max_tokens": 6, "temperature": 0}
        status, body = _ask(server.port, "POST", "/v1/completions", asked)
        assert status == 200
        text = json.loads(body)["choices"][0]["text"]
        streamed = _ask(server.port, "POST", "/v1/completions", {**asked, "stream": True})[1]
        assert "".join(p["choices"][0]["text"] for p in pieces(streamed)) == text
        # A client that hangs up in the middle of its stream; the server ends well after it.
        with socket.create_connection(("127.0.0.1", server.port)) as link:
            raw = json.dumps({**asked, "stream": True, "max_tokens": 60}).encode()
            head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(raw)}\r\n\r\n"
            link.sendall(head.encode() + raw)
            assert link.recv(15) == b"HTTP/1.1 200 OK"
        assert server.end() == 0
    finally:
        if server.process.poll() is None:
            server.process.kill()


@pytest.mark.skipif(
    importlib.util.find_spec("openai") is None,
    reason="OpenAI's own client is not among the tests' needs; the routes are tested without it",
)
@needs_uvicorn
def test_openai_s_own_client(tmp_path: Path) -> None:
    import openai

    server = Running(None, "--language-model", str(write(tmp_path)))
    try:
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none")
        assert [m.id for m in client.models.list()] == ["small"]
        asked: Any = {"model": "small", "temperature": 0, "max_tokens": 6}
        text = client.completions.create(prompt="hello", **asked).choices[0].text
        assert text
        asked["messages"] = [{"role": "user", "content": "hello"}]
        whole = client.chat.completions.create(**asked)
        stream = client.chat.completions.create(**asked, stream=True)
        parts = [part.choices[0].delta.content or "" for part in stream]
        assert "".join(parts) == whole.choices[0].message.content
        with pytest.raises(openai.BadRequestError, match="'tools' is not there"):
            client.chat.completions.create(**asked, tools=[{"type": "function"}])
        with pytest.raises(openai.NotFoundError, match="served are small"):
            client.completions.create(model="other", prompt="x")
    finally:
        server.end()


@needs_uvicorn
def test_a_folder_with_a_broken_model_does_not_start(tmp_path: Path) -> None:
    at = tmp_path / "net" / "1"
    at.mkdir(parents=True)
    (at / "model.pt2").write_bytes(b"nothing")
    command = [sys.executable, "-m", "lucerne", "serve", str(tmp_path), "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    assert "net version 1 can't be served" in done.stderr


def test_without_the_extra_the_command_says_what_to_install(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['uvicorn'] = None\n"
        f"from lucerne.cli import main; sys.exit(main(['serve', {str(tmp_path)!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "lucerne[serve]" in done.stderr
