"""Results that are to come, with torch's names."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

T = TypeVar("T")
S = TypeVar("S")


class Future(Generic[T]):
    """A result that somebody sets and others wait for.

    >>> f = Future()
    >>> g = f.then(lambda done: done.value() + 1)
    >>> f.set_result(1)
    >>> g.wait()
    2
    """

    def __init__(self, *, devices: Sequence[Any] | None = None) -> None:
        if devices:
            raise ValueError(
                f"Future(devices={list(devices)!r}): results are on the host here, leave it out"
            )
        self._inner: concurrent.futures.Future[T] = concurrent.futures.Future()

    def done(self) -> bool:
        """Whether the result, or an error, is there."""
        return self._inner.done()

    def wait(self) -> T:
        """The result, when it is there; an error is raised."""
        return self._inner.result()

    def value(self) -> T:
        """The result, which must be there."""
        if not self.done():
            raise RuntimeError("value() was called before the future has one: call wait()")
        return self._inner.result()

    def set_result(self, result: T) -> None:
        """Give the result to all who wait."""
        self._check_open()
        self._inner.set_result(result)

    def set_exception(self, result: BaseException) -> None:
        """Let `wait` raise this error."""
        if not isinstance(result, Exception):
            raise AssertionError(f"{result} is of type {type(result)}, not an Exception.")
        self._check_open()
        self._inner.set_exception(result)

    def _check_open(self) -> None:
        if self.done():
            raise RuntimeError("Attempting to mark a completed Future as complete again.")

    def then(self, callback: Callable[[Future[T]], S]) -> Future[S]:
        """What the callback makes of this future when it is done."""
        made: Future[S] = Future()

        def run(_: Any) -> None:
            try:
                made.set_result(callback(self))
            except Exception as error:
                made.set_exception(error)

        self._inner.add_done_callback(run)
        return made

    def add_done_callback(self, callback: Callable[[Future[T]], None]) -> None:
        """Call it with this future when it is done."""
        self._inner.add_done_callback(lambda _: callback(self))


def collect_all(futures: Sequence[Future[Any]]) -> Future[list[Future[Any]]]:
    """A future that is done when all of these are."""
    made: Future[list[Future[Any]]] = Future()
    missing = [len(futures)]
    if not futures:
        made.set_result([])

    def count(_: Any) -> None:
        missing[0] -= 1
        if missing[0] == 0:
            made.set_result(list(futures))

    for future in futures:
        future.add_done_callback(count)
    return made


def wait_all(futures: Sequence[Future[Any]]) -> list[Any]:
    """The results of all of these."""
    return [f.wait() for f in collect_all(futures).wait()]
