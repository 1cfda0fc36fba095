"""`Work`: a collective that was started."""

from __future__ import annotations

import concurrent.futures
import datetime
from collections.abc import Callable
from typing import Any

from lucerne._src.distributed.meeting.errors import DistBackendError
from lucerne._src.distributed.meeting.stores import seconds_of
from lucerne._src.futures import Future


class Work:
    """What an asynchronous collective gives back: `wait` for it before the tensors are used."""

    def __init__(
        self, name: str = "", result: Any = None, source: Callable[[], int] | None = None
    ) -> None:
        self._name, self._result, self._source = name, result, source
        self._done: concurrent.futures.Future[None] = concurrent.futures.Future()

    def finish(self, error: BaseException | None = None) -> None:
        """Called by who carries it out."""
        if error is None:
            self._done.set_result(None)
        else:
            self._done.set_exception(error)

    def is_completed(self) -> bool:
        """Whether it is over, well or not."""
        return self._done.done()

    def is_success(self) -> bool:
        return self._done.done() and self._done.exception() is None

    def exception(self) -> BaseException | None:
        return self._done.exception() if self._done.done() else None

    def wait(self, timeout: datetime.timedelta | float | None = None) -> bool:
        """Wait until it is over; an error of the collective is raised here."""
        patience = None if timeout is None or not timeout else seconds_of(timeout)
        try:
            self._done.result(patience)
        except concurrent.futures.TimeoutError:
            if self._done.done():
                raise
            raise DistBackendError(f"{self._name} is not over after {patience:g} s") from None
        return True

    def synchronize(self) -> None:
        self.wait()

    def result(self) -> list[Any]:
        """The tensors that were written."""
        self.wait()
        return self._tensors()

    def _tensors(self) -> list[Any]:
        found = self._result
        return list(found) if isinstance(found, list | tuple) else [] if found is None else [found]

    def source_rank(self) -> int:
        """Whose message a `recv` took."""
        if self._source is None:
            raise RuntimeError("sourceRank() may only be called on work of recv or recv-from-any")
        self.wait()
        return self._source()

    def get_future(self) -> Future[list[Any]]:
        """The tensors, when they are written, as a future of `lucerne.futures`."""
        made: Future[list[Any]] = Future()

        def tell(done: concurrent.futures.Future[None]) -> None:
            error = done.exception()
            if isinstance(error, Exception):
                made.set_exception(error)
            elif error is None:
                made.set_result(self._tensors())

        self._done.add_done_callback(tell)
        return made
