"""A client of the application itself, without a network; and models to serve."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lucerne as torch
from lucerne.export import Dim, export, save


class Scaled(torch.nn.Module):
    """Rows of 4 in, and two results."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.register_buffer("factor", torch.tensor(factor))

    def forward(self, x: Any, y: Any) -> Any:
        return x * self.factor + y, x.sum(1)


class Looked(torch.nn.Module):
    """An index out of range raises."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(5, 3)

    def forward(self, at: Any) -> Any:
        return self.words(at)


def write_model(folder: Path, name: str, version: int, factor: float = 2.0) -> None:
    rows = Dim("rows", min=1, max=64)
    if name == "looked":
        torch.manual_seed(0)
        made = export(Looked(), (torch.tensor([1, 2]),), dynamic_shapes=({0: rows},))
    elif name == "fixed":
        made = export(torch.nn.ReLU(), (torch.ones(2, 3),))
    else:
        x = torch.ones(3, 4)
        made = export(Scaled(factor), (x, x), dynamic_shapes=({0: rows}, {0: rows}))
    at = folder / name / str(version)
    at.mkdir(parents=True)
    save(made, at / "model.pt2")


def scaled_body(rows: int, first: float = 0.0) -> dict[str, Any]:
    """A request for `Scaled`."""
    x = [first + n for n in range(4 * rows)]
    return {"inputs": [
        {"name": "x", "datatype": "FP32", "shape": [rows, 4], "data": x},
        {"name": "y", "datatype": "FP32", "shape": [rows, 4], "data": [0.5] * (4 * rows)},
    ]}  # fmt: skip


class Answer:
    """What came back."""

    status = 0
    body = b""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}

    def json(self) -> Any:
        return json.loads(self.body)


async def ask(
    app: Any,
    method: str,
    path: str,
    body: Any = b"",
    headers: Mapping[str, str] | None = None,
    leaves: float | None = None,
) -> Answer:
    """One request; `leaves`: seconds until the client goes away."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = {"content-length": str(len(raw)), **(headers or {})}
    half = len(raw) // 2
    parts = [{"type": "http.request", "body": raw[:half], "more_body": True},
             {"type": "http.request", "body": raw[half:]}]  # fmt: skip
    answer = Answer()

    async def receive() -> Any:
        if parts:
            return parts.pop(0)
        if leaves is None:
            await asyncio.Event().wait()
        await asyncio.sleep(leaves or 0)
        return {"type": "http.disconnect"}

    async def send(message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = {k.decode(): v.decode() for k, v in message["headers"]}
        else:
            answer.body += message["body"]

    scope = {"type": "http", "method": method, "path": path,
             "headers": [(k.encode(), v.encode()) for k, v in lines.items()]}  # fmt: skip
    await app(scope, receive, send)
    return answer


def pieces(body: bytes) -> list[Any]:
    """The objects of a stream, which ends as it must."""
    *lines, last, nothing = body.decode().split("\n\n")
    assert (last, nothing) == ("data: [DONE]", "")
    return [json.loads(line.removeprefix("data: ")) for line in lines]
