"""The routes, of the Open Inference Protocol and of OpenAI's clients, and the server's life."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lucerne._src.base.process import notices
from lucerne._src.serve import completions
from lucerne._src.serve.http import ClientGoneError, Exchange, HTTPError, Receive, Send
from lucerne._src.serve.language_models import LanguageModel, LanguageModelSource
from lucerne._src.serve.metrics import Metrics
from lucerne._src.serve.programs import ServedProgram
from lucerne._src.serve.queues import BatchQueue
from lucerne._src.serve.repository import LoadedVersion, Repository
from lucerne._src.serve.tensors import LENGTH_HEADER, read_request, written

NAME = "lucerne"


@dataclass(frozen=True)
class ServeLimits:
    """How much the server takes on."""

    most_rows: int = 32
    """Rows of one call of a program."""
    wait: float = 0.002
    """Seconds that a request waits for others."""
    most_waiting: int = 1024
    """Requests in the queue of a model."""
    most_bytes: int = 64 << 20
    """Of the body of a request."""
    seconds: float = 30.0
    """Until an answer, or a language model's next token; then it is 504."""


class App:
    """The server as an ASGI application: `App(folder)` in any server of that kind.

    `folder` holds exported programs, `language_models` are files of their own; either may be left
    out.
    """

    def __init__(
        self,
        folder: str | Path | None,
        limits: ServeLimits | None = None,
        language_models: Sequence[LanguageModelSource] = (),
    ) -> None:
        self.folder = None if folder is None else Path(folder)
        self.limits, self.sources = limits or ServeLimits(), list(language_models)
        names = [source.name for source in self.sources]
        if len(set(names)) != len(names):
            raise ValueError(f"language models have names of their own, got {', '.join(names)}")
        self.metrics = Metrics()
        self._repository: Repository | None = None
        self._language_models: dict[str, LanguageModel] = {}
        self._since = int(time.time())

    @property
    def repository(self) -> Repository:
        """The models, from the server's start to its end."""
        if self._repository is None:
            raise HTTPError(503, "the server has not started, or is ending")
        return self._repository

    async def start(self) -> None:
        """Load all models."""
        made = Repository(self.folder, self._queue)
        await made.load_all()
        for source in self.sources:
            model, vocabulary = await asyncio.to_thread(source.load)
            self._language_models[source.name] = LanguageModel(
                source, model, vocabulary, self.metrics, self.limits.most_waiting
            )
        self._repository = made

    async def stop(self) -> None:
        """Answer what waits, and take no more."""
        ending, self._repository = self._repository, None
        if ending is not None:
            await ending.close()
        writing, self._language_models = self._language_models, {}
        await asyncio.gather(*(each.close() for each in writing.values()))

    def _queue(self, name: str, program: ServedProgram) -> BatchQueue:
        limits = self.limits
        return BatchQueue(
            name, program, self.metrics, most_rows=limits.most_rows, wait=limits.wait,
            most_waiting=limits.most_waiting,
        )  # fmt: skip

    # ---- ASGI --------------------------------------------------------------------------------

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._life(receive, send)
        elif scope["type"] == "http":
            await self._exchange(Exchange(scope, receive, send))
        else:
            raise ValueError(f"this server speaks HTTP, not {scope['type']!r}")

    async def _life(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await self.start()
                except Exception as error:
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    return
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _exchange(self, x: Exchange) -> None:
        began, model = time.monotonic(), ""
        parts = [p for p in x.path.split("/") if p]
        try:
            model = self._counted(parts)
            await self._route(x, parts)
        except HTTPError as error:
            told = completions.error_body(error) if parts[:1] == ["v1"] else {"error": error.text}
            await x.answer_json(told, error.status)
        except ClientGoneError:
            x.status = 0
        except Exception as error:
            notices.warn(f"lucerne serve: {x.method} {x.path[:200]}: {error!r}")
            await x.answer_json({"error": f"the server failed: {type(error).__name__}"}, 500)
        self.metrics.answered(model, x.status, time.monotonic() - began)

    def _counted(self, parts: list[str]) -> str:
        """The model that a request is counted for: strangers' names would grow the counts."""
        served = self._repository.served if self._repository is not None else {}
        return (
            parts[2] if parts[:2] == ["v2", "models"] and parts[2:3] and parts[2] in served else ""
        )

    async def _route(self, x: Exchange, parts: list[str]) -> None:
        match (x.method, *parts):
            case ("GET", "metrics"):
                await x.answer(200, self.metrics.text().encode(), "text/plain; version=0.0.4")
            case ("GET", "v2"):
                kinds = ["binary_tensor_data", "model_repository"]
                await x.answer_json({"name": NAME, "version": "2", "extensions": kinds})
            case ("GET", "v2", "health", "live"):
                await x.answer_json({"live": True})
            case ("GET", "v2", "health", "ready"):
                await x.answer_json({"ready": bool(self.repository)})
            case ("POST", "v2", "repository", "index"):
                await x.answer_json(self._index())
            case ("POST", "v2", "repository", "models", name, "load"):
                found = await self.repository.load(name)
                await x.answer_json({"name": name, "version": found.version})
            case ("POST", "v2", "models", name, "versions", version, "infer"):
                await self._infer(x, name, version)
            case ("POST", "v2", "models", name, "infer"):
                await self._infer(x, name, None)
            case ("GET", "v2", "models", name, "versions", version, *rest):
                await self._model(x, self.repository.find(name, version), rest)
            case ("GET", "v2", "models", name, *rest):
                await self._model(x, self.repository.find(name, None), rest)
            case ("GET", "v1", "models"):
                await x.answer_json({"object": "list", "data": self._listed()})
            case ("GET", "v1", "models", name) if name in self._language_models:
                await x.answer_json(next(m for m in self._listed() if m["id"] == name))
            case ("POST", "v1", "completions"):
                await self._write(x, chat=False)
            case ("POST", "v1", "chat", "completions"):
                await self._write(x, chat=True)
            case _:
                raise HTTPError(404, f"no route {x.method} {x.path[:200]}")

    def _listed(self) -> list[dict[str, Any]]:
        return [{"id": name, "object": "model", "created": self._since, "owned_by": NAME}
                for name in self._language_models]  # fmt: skip

    async def _write(self, x: Exchange, chat: bool) -> None:
        """Text of a language model."""
        if self._repository is None:
            raise HTTPError(503, "the server has not started, or is ending")
        body = await x.body(self.limits.most_bytes)
        asked = completions.read_asked(body, self._language_models, chat)
        await completions.answer(x, asked, self.limits.seconds)

    def _index(self) -> list[dict[str, str]]:
        served = self.repository.served.values()
        return [{"name": m.name, "version": m.version, "state": "READY"} for m in served]

    async def _model(self, x: Exchange, model: LoadedVersion, rest: list[str]) -> None:
        if rest == ["ready"]:
            await x.answer_json({"name": model.name, "ready": True})
        elif rest:
            raise HTTPError(404, f"no route {x.method} {x.path[:200]}")
        else:
            await x.answer_json({
                "name": model.name, "versions": [model.version], "platform": NAME,
                "inputs": [p.told() for p in model.program.inputs],
                "outputs": [p.told() for p in model.program.outputs],
            })  # fmt: skip

    async def _infer(self, x: Exchange, name: str, version: str | None) -> None:
        self.repository.find(name, version)  # a stranger's body is not read
        body = await x.body(self.limits.most_bytes)
        request = read_request(body, x.headers.get(LENGTH_HEADER))
        model = self.repository.find(name, version)  # another version may have come meanwhile
        arrays = model.program.checked(request.inputs)
        found = await x.unless_gone(model.queue.put(arrays), self.limits.seconds)
        outputs = [(p.name, a) for p, a in zip(model.program.outputs, found, strict=True)]
        answer, headers = written(model.name, model.version, request, outputs)
        await x.answer(200, answer, headers=headers)
