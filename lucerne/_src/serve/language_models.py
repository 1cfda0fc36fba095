"""A language model that is served: one batch of requests, stepped by a thread of its own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from lucerne._src.base.process import notices
from lucerne._src.generate.batching import Batcher, GenerationRequest
from lucerne._src.generate.gguf_models import load_decoder
from lucerne._src.generate.sampling import Sampling
from lucerne._src.generate.text import Vocabulary, load_vocabulary
from lucerne._src.quantization.gguf import load_gguf
from lucerne._src.serve.http import HTTPError
from lucerne._src.serve.metrics import Metrics


@dataclass(frozen=True)
class LanguageModelSource:
    """A file to serve, and how."""

    name: str
    path: str | os.PathLike[str]
    slots: int = 8
    """Texts that are written side by side."""
    context: int = 2048
    """Tokens of a text, its prompt included."""
    rounded: bool = False
    """Whether rows of inputs are rounded to 8 bits, too."""

    def load(self) -> tuple[Any, Vocabulary]:
        """The model and its tokens."""
        found = load_gguf(self.path)
        vocabulary = load_vocabulary(found.metadata)
        return load_decoder(found, dynamic=self.rounded, most_context=self.context), vocabulary


@dataclass(eq=False)
class RunningText:
    """A request that the model works on: its tokens, one after the other."""

    model: LanguageModel
    request: GenerationRequest
    came: asyncio.Queue[tuple[int | None, str]]
    """Each token, and why the text ended with it."""

    async def tokens(self, seconds: float) -> AsyncIterator[int]:
        """The tokens as they come; an error if the next one takes longer than that."""
        while True:
            try:
                token, ended = await asyncio.wait_for(self.came.get(), seconds)
            except TimeoutError:
                raise HTTPError(504, f"no token within {seconds} seconds") from None
            if ended == "failed":
                raise HTTPError(500, "the model failed; the server's log says how")
            if token is not None:
                yield token
            if ended:
                return

    def cancel(self) -> None:
        """Nobody waits for it any more."""
        self.model.batcher.cancel(self.request)


class LanguageModel:
    """Requests in, tokens out. One text's tokens do not depend on who else is served."""

    def __init__(
        self, source: LanguageModelSource, model: Any, vocabulary: Vocabulary, metrics: Metrics,
        most_waiting: int,
    ) -> None:  # fmt: skip
        self.name, self.vocabulary, self.metrics = source.name, vocabulary, metrics
        config = getattr(model, "config", None)
        self.words: int = min(vocabulary.words, getattr(config, "words", vocabulary.words))
        capacity = min(source.context, getattr(config, "context", source.context))
        self.batcher = Batcher(model, slots=source.slots, capacity=capacity)
        self.most_waiting = most_waiting
        self._came, self._closing = asyncio.Event(), False
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, f"serve-{self.name}")
        self._task = self._loop.create_task(self._work())

    @property
    def capacity(self) -> int:
        """Tokens of a text, its prompt included."""
        return self.batcher.decoding.capacity

    def put(self, tokens: Sequence[int], most: int, sampling: Sampling) -> RunningText:
        """Begin a text after these tokens, of at most so many new ones."""
        if not tokens or len(tokens) >= self.capacity:
            raise HTTPError(
                400,
                f"the prompt has {len(tokens)} tokens; one at least, and less than "
                f"{self.capacity}, fit into the context",
            )
        if not all(type(t) is int and 0 <= t < self.words for t in tokens):
            raise HTTPError(400, f"tokens are numbers from 0 to {self.words - 1}")
        if len(self.batcher.waiting) >= self.most_waiting:
            waiting = len(self.batcher.waiting)
            raise HTTPError(429, f"{waiting} requests for {self.name} wait already")
        came: asyncio.Queue[tuple[int | None, str]] = asyncio.Queue()

        def told(request: GenerationRequest) -> None:
            new = request.ended not in ("cancelled", "failed")
            item = (request.tokens[-1] if new else None, request.ended)
            self._loop.call_soon_threadsafe(came.put_nowait, item)

        stop = sorted(self.vocabulary.ends)
        request = self.batcher.submit(tokens, most, sampling=sampling, stop=stop, told=told)
        self._came.set()
        return RunningText(self, request, came)

    async def close(self) -> None:
        """Write what has begun to its end, then go."""
        self._closing = True
        self._came.set()
        await self._task
        self._thread.shutdown()

    async def _work(self) -> None:
        while True:
            while self.batcher.is_idle:
                if self._closing:
                    return
                self._came.clear()
                await self._came.wait()
            began, before = self._loop.time(), self.batcher.written
            try:
                await self._loop.run_in_executor(self._thread, self.batcher.step)
            except Exception as error:
                notices.warn(f"lucerne serve: the model {self.name} failed: {error!r}")
                self.batcher.fail()
            self.metrics.wrote(
                self.name, self.batcher.written - before, self._loop.time() - began,
                len(self.batcher.waiting),
            )  # fmt: skip
