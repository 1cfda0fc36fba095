"""Requests that come and go between steps, in slots of one cache.

Each step takes at most one piece of one waiting prompt through the model, then one token of every
running request, all slots in one product. A prompt is alone in its program, and the program of
tokens always has all slots, taken or not: what a row of it gives depends on that row alone, so a
request has the same bits whoever runs beside it, and in whichever slot.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from lucerne._src.base.process import forks
from lucerne._src.generate.cache import KVCache
from lucerne._src.generate.decoding import SMALL_PIECE, Decoding, piece_of
from lucerne._src.generate.sampling import GREEDY, Sampler, Sampling
from lucerne._src.tensor import api as lu
from lucerne._src.tensor.tensor import Tensor


@dataclass(eq=False)
class GenerationRequest:
    """A prompt, and what has been written for it so far."""

    prompt: list[int]
    max_new_tokens: int
    sampling: Sampling = GREEDY
    stop: frozenset[int] = frozenset()
    told: Callable[[GenerationRequest], None] | None = None
    """Called after each token, and when the request ends, by the thread that steps."""
    tokens: list[int] = field(default_factory=list)
    ended: str = ""
    """Why: "stop", "length", "cancelled" or "failed"; empty while it runs."""
    kept_logits: list[Tensor] | None = None
    """Where the logits of each token are put, if it is a list."""


class _Slot:
    """A row of the cache with the request that has it."""

    def __init__(self, cache: KVCache) -> None:
        self.cache = cache
        self.request: GenerationRequest | None = None
        self.sampler = Sampler(GREEDY)
        self.left: list[int] = []
        """Tokens of the prompt that the model has not seen."""

    @property
    def is_running(self) -> bool:
        """Whether its next token is made by the step of all slots."""
        return self.request is not None and not self.left


class Batcher:
    """A model that serves many requests at once; they join and leave between steps.

    >>> import lucerne as torch
    >>> from lucerne.generate import Batcher, Decoder, DecoderConfig
    >>> model = Decoder(DecoderConfig(words=11, width=16, layers=1, heads=2)).eval()
    >>> batcher = Batcher(model, slots=2, capacity=32, compile=False)
    >>> requests = [batcher.submit([1, 2, n], 4) for n in range(3)]
    >>> batcher.run()
    >>> [len(r.tokens) for r in requests]
    [4, 4, 4]
    """

    def __init__(
        self, model: Any, *, slots: int = 8, capacity: int = 2048, compile: bool = True
    ) -> None:
        self.decoding = Decoding(model, batch=slots, capacity=capacity, compile=compile)
        self.slots = [_Slot(self.decoding.cache.row(i)) for i in range(slots)]
        self.waiting: deque[GenerationRequest] = deque()
        self._lock = forks.lock()
        self.steps = 0
        """Calls of the program of all slots."""
        self.written = 0
        """Tokens of all requests."""

    # ---- from any thread ---------------------------------------------------------------------

    def submit(
        self,
        prompt: Sequence[int],
        max_new_tokens: int,
        *,
        sampling: Sampling = GREEDY,
        stop: Sequence[int] = (),
        told: Callable[[GenerationRequest], None] | None = None,
        keep_logits: bool = False,
    ) -> GenerationRequest:
        """Queue a request; `told` is called with it after each token and at its end."""
        [row] = self.decoding.checked([prompt], 1)
        room = min(max_new_tokens, self.decoding.capacity - len(row))
        if room < 1:
            raise ValueError(
                f"Batcher: {max_new_tokens} tokens after {len(row)}; at least one is written, and "
                f"a slot has room for {self.decoding.capacity}"
            )
        made = GenerationRequest(row, room, sampling, frozenset(stop), told)
        made.kept_logits = [] if keep_logits else None
        with self._lock:
            self.waiting.append(made)
        return made

    def cancel(self, request: GenerationRequest) -> None:
        """End a request at the next step; one that has ended stays as it is."""
        request.ended = request.ended or "cancelled"

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs and nothing waits."""
        return not self.waiting and all(slot.request is None for slot in self.slots)

    # ---- by one thread -----------------------------------------------------------------------

    def step(self) -> bool:
        """One piece of a prompt, and one token of every running request; False: nothing to do."""
        self._admit()
        reading = next((slot for slot in self.slots if slot.left), None)
        if reading is not None:
            self._read(reading)
        running = [slot for slot in self.slots if slot.is_running]
        # A prompt that has just ended has its first token already and takes part.
        if running:
            self._write(running)
        return reading is not None or bool(running)

    def fail(self) -> None:
        """End what runs, after an error of the model: what its slots hold is nobody's now."""
        for slot in self.slots:
            if slot.request is not None:
                slot.request.ended = slot.request.ended or "failed"
                self._leave(slot)

    def run(self) -> None:
        """Steps until all requests have ended."""
        while not self.is_idle:
            self.step()

    def _admit(self) -> None:
        """Waiting requests into free slots; cancelled ones out of theirs."""
        for slot in self.slots:
            if slot.request is not None and slot.request.ended:
                self._leave(slot)
            while slot.request is None:
                with self._lock:
                    found = self.waiting.popleft() if self.waiting else None
                if found is None:
                    break
                if found.ended:
                    self._tell(found)
                    continue
                slot.request, slot.left = found, list(found.prompt)
                slot.sampler = Sampler(found.sampling)
                slot.cache.clear()

    def _read(self, slot: _Slot) -> None:
        """One piece of a prompt, alone."""
        size = max(SMALL_PIECE, piece_of(len(slot.left)))
        count = min(size, len(slot.left))
        tokens = lu.tensor([slot.left[:count] + [0] * (size - count)])
        logits = self.decoding.step(tokens, lu.tensor([count]), slot.cache)
        slot.left = slot.left[count:]
        if not slot.left:
            self._choose(slot, logits[0])

    def _write(self, running: list[_Slot]) -> None:
        """One token of each running request."""
        last = [slot.request.tokens[-1] if slot in running and slot.request else 0
                for slot in self.slots]  # fmt: skip
        tokens = lu.tensor([[t] for t in last])
        logits = self.decoding.step(tokens, lu.tensor([int(s in running) for s in self.slots]))
        self.steps += 1
        for i, slot in enumerate(self.slots):
            if slot in running:
                self._choose(slot, logits[i])

    def _choose(self, slot: _Slot, logits: Tensor) -> None:
        """The next token of a slot; the request leaves with its last."""
        request = slot.request
        assert request is not None  # only slots that are taken are read or written
        if request.kept_logits is not None:
            request.kept_logits.append(logits.clone())
        token = slot.sampler.choose(logits)
        request.tokens.append(token)
        self.written += 1
        if not request.ended:
            full = len(request.tokens) >= request.max_new_tokens
            request.ended = "stop" if token in request.stop else "length" if full else ""
        if request.ended:
            self._leave(slot)
        else:
            self._tell(request)

    def _leave(self, slot: _Slot) -> None:
        request, slot.request, slot.left = slot.request, None, []
        slot.cache.clear()
        if request is not None:
            self._tell(request)

    def _tell(self, request: GenerationRequest) -> None:
        if request.told is not None:
            request.told(request)
