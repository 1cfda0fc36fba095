"""Requests that come together run together."""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from lucerne._src.serve.http import HTTPError
from lucerne._src.serve.metrics import Metrics
from lucerne._src.serve.programs import ServedProgram
from lucerne._src.serve.tensors import Array


@dataclass
class Waiting:
    """A request in the queue."""

    arrays: list[Array]
    rows: int
    done: asyncio.Future[list[Array]]

    @property
    def form(self) -> Any:
        """What must be equal for two requests to run as one."""
        return [(a.dtype, a.shape[1:]) for a in self.arrays]


class BatchQueue:
    """The queue of one program: calls of up to `most_rows` rows, begun at most `wait` seconds after
    the first of their requests came. More than `most_waiting` requests are refused (429)."""

    def __init__(
        self,
        name: str,
        program: ServedProgram,
        metrics: Metrics,
        *,
        most_rows: int,
        wait: float,
        most_waiting: int,
    ) -> None:
        self.name, self.program, self.metrics = name, program, metrics
        self.most_rows = min(most_rows, program.most_rows)
        self.wait, self.most_waiting = wait, most_waiting
        self.waiting: deque[Waiting] = deque()
        self._came = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, f"serve-{name}")
        self._task = asyncio.get_running_loop().create_task(self._work())
        self._closing = False

    def put(self, arrays: list[Array]) -> asyncio.Future[list[Array]]:
        """Queue a request; one whose future is cancelled before its turn is left out.

        (No coroutine: between the look for a queue and this nothing else may run, or the queue
        could be closed by then.)
        """
        if len(self.waiting) >= self.most_waiting:  # those whose clients are gone do not count
            self.waiting = deque(each for each in self.waiting if not each.done.done())
        if len(self.waiting) >= self.most_waiting:
            raise HTTPError(429, f"{len(self.waiting)} requests for {self.name} wait already")
        rows = arrays[0].shape[0] if arrays and arrays[0].ndim else 0
        if rows > self.program.most_rows > 0:
            raise HTTPError(400, f"{rows} rows; the program takes at most {self.program.most_rows}")
        done: asyncio.Future[list[Array]] = asyncio.get_running_loop().create_future()
        self.waiting.append(Waiting(arrays, rows, done))
        self.metrics.waiting(self.name, len(self.waiting))
        self._came.set()
        return done

    async def close(self) -> None:
        """Answer all that wait, then end."""
        self._closing = True
        self._came.set()
        await self._task
        self._thread.shutdown()

    async def _work(self) -> None:
        while True:
            while not self.waiting:
                if self._closing:
                    return
                self._came.clear()
                await self._came.wait()
            batch = await self._gather()
            if batch:
                await self._answer(batch)

    async def _gather(self) -> list[Waiting]:
        """The first request, and those that may go with it."""
        if self.most_rows > 1 and not self._closing and self._rows() < self.most_rows:
            await self._fill(asyncio.get_running_loop().time() + self.wait)
        made: list[Waiting] = []
        rows = 0
        while self.waiting:
            each = self.waiting[0]
            if each.done.done():  # its client is gone
                self.waiting.popleft()
                continue
            if made and (rows + each.rows > self.most_rows or each.form != made[0].form):
                break
            made.append(self.waiting.popleft())
            rows += each.rows
            if not self.most_rows:
                break
        self.metrics.waiting(self.name, len(self.waiting))
        return made

    async def _fill(self, ends: float) -> None:
        """Wait until there are enough rows, or until `ends`."""
        loop = asyncio.get_running_loop()
        while not self._closing and self._rows() < self.most_rows and loop.time() < ends:
            self._came.clear()
            try:
                await asyncio.wait_for(self._came.wait(), ends - loop.time())
            except TimeoutError:
                return

    def _rows(self) -> int:
        return sum(each.rows for each in self.waiting)

    async def _answer(self, batch: list[Waiting]) -> None:
        try:
            for each, found in zip(batch, await self._run(batch), strict=True):
                if not each.done.done():
                    each.done.set_result(found)
        except Exception as error:
            if len(batch) > 1:  # one of them may be to blame: each answers for itself
                for each in batch:
                    await self._answer([each])
            elif not batch[0].done.done():
                batch[0].done.set_exception(error)

    async def _run(self, batch: list[Waiting]) -> list[list[Array]]:
        """One call of the program; its rows, request by request."""
        arrays = batch[0].arrays
        if len(batch) > 1:
            parts = zip(*(each.arrays for each in batch), strict=True)
            arrays = [np.concatenate(part) for part in parts]
        loop = asyncio.get_running_loop()
        began = loop.time()
        found = await loop.run_in_executor(self._thread, self.program.run, arrays)
        rows = sum(each.rows for each in batch)
        self.metrics.ran(self.name, len(batch), rows, loop.time() - began)
        if len(batch) == 1:
            return [found]
        cuts = np.cumsum([each.rows for each in batch])[:-1]
        split = [np.split(a, cuts) for a in found]
        return [[a[n] for a in split] for n in range(len(batch))]
