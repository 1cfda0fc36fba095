"""Requests and answers, as ASGI has them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
JSON = "application/json"


class HTTPError(Exception):
    """An answer that is no success: its status and what is said to the client."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


class ClientGoneError(Exception):
    """Nobody waits for the answer any more."""


def parsed(body: bytes) -> Any:
    """The JSON of a body."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise HTTPError(400, "the body is not JSON") from None


class Exchange:
    """One request, and the way its answer goes."""

    def __init__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.headers = {
            k.decode("latin-1").lower(): v.decode("latin-1") for k, v in scope["headers"]
        }
        self._receive, self._send = receive, send
        self.status = 0
        """Of the answer; 0: there was none."""

    async def body(self, most: int) -> bytes:
        """The whole body, if it has at most so many bytes; it is never read further than that."""
        told = self.headers.get("content-length", "0")
        if not told.isdigit() or int(told) > most:
            raise HTTPError(413, f"a body of {told[:20]} bytes; at most {most} are taken")
        parts, size = [], 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGoneError
            part = message.get("body", b"")
            size += len(part)
            if size > most:
                raise HTTPError(413, f"a body of more than {most} bytes")
            parts.append(part)
            if not message.get("more_body"):
                return b"".join(parts)

    async def gone(self) -> None:
        """Ends when the client has left."""
        while (await self._receive())["type"] != "http.disconnect":
            continue

    async def unless_gone(self, work: asyncio.Future[Any], seconds: float | None = None) -> Any:
        """What some work gives, unless the client leaves or time is up before: then it ends."""
        gone = asyncio.ensure_future(self.gone())
        try:
            await asyncio.wait((work, gone), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return work.result()
            if gone.done():
                raise ClientGoneError
            raise HTTPError(504, f"no result within {seconds} seconds")
        finally:
            work.cancel()
            gone.cancel()

    async def answer(
        self, status: int, body: bytes, kind: str = JSON, headers: Mapping[str, str] | None = None
    ) -> None:
        """Send the whole answer."""
        self.status = status
        lines = {"content-type": kind, "content-length": str(len(body)), **(headers or {})}
        pairs = [(k.encode("latin-1"), v.encode("latin-1")) for k, v in lines.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": pairs})
        await self._send({"type": "http.response.body", "body": body})

    async def begin(self, kind: str) -> None:
        """Begin an answer whose parts follow."""
        self.status = 200
        head = [(b"content-type", kind.encode("latin-1")), (b"cache-control", b"no-cache")]
        await self._send({"type": "http.response.start", "status": 200, "headers": head})

    async def part(self, body: bytes, *, last: bool = False) -> None:
        """A part of an answer that has begun."""
        await self._send({"type": "http.response.body", "body": body, "more_body": not last})

    async def answer_json(self, value: Any, status: int = 200) -> None:
        """Send a value as JSON."""
        await self.answer(status, json.dumps(value).encode())
