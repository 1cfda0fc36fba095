"""DataPipes: datasets that are chained by methods (`pipe.map(f).batch(4)`).

PyTorch has retired them; they are here for programs that still use them.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, TypeVar

from lucerne._src.base.process import notices
from lucerne.utils.data.dataset import Dataset, IterableDataset

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


def copied(data: Any, what: str) -> Any:
    """A copy that pipes may write to; the data itself, with a warning, if it can't be copied."""
    try:
        return copy.deepcopy(data)
    except TypeError:
        notices.warn(
            f"The input {what} can not be deepcopied, please be aware of in-place modification "
            "would affect source data."
        )
        return data


class _Chained:
    """Registered pipes as methods."""

    functions: ClassVar[dict[str, Callable[..., Any]]] = {}

    def __getattr__(self, name: str) -> Any:
        found = type(self).functions.get(name)
        if found is None:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}")
        return functools.partial(found, self)

    @classmethod
    def register_function(cls, function_name: str, function: Callable[..., Any]) -> None:
        cls.functions[function_name] = function

    @classmethod
    def register_datapipe_as_function(
        cls, function_name: str, cls_to_register: Any, enable_df_api_tracing: bool = False
    ) -> None:
        """Let `pipe.function_name(...)` make `cls_to_register(pipe, ...)`."""
        if function_name in cls.functions:
            raise Exception(
                f"Unable to add DataPipe function name {function_name} as it is already taken"
            )
        cls.functions[function_name] = cls_to_register

    def __getstate__(self) -> dict[str, Any]:
        return dict(self.__dict__)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __str__(self) -> str:
        return type(self).__qualname__

    __repr__ = __str__


class IterDataPipe(_Chained, IterableDataset[T_co]):
    """A stream with methods for what can follow it.

    >>> from lucerne.utils.data.datapipes.iter import IterableWrapper
    >>> list(IterableWrapper(range(4)).map(lambda x: x * 2).batch(3))
    [[0, 2, 4], [6]]
    """

    functions: ClassVar[dict[str, Callable[..., Any]]] = {}

    def __iter__(self) -> Iterator[T_co]:
        return self

    def reset(self) -> None:
        """Called by nobody here: a pipe that keeps a place may go back to its beginning."""


class MapDataPipe(_Chained, Dataset[T_co]):
    """A dataset with keys and methods for what can follow it."""

    functions: ClassVar[dict[str, Callable[..., Any]]] = {}


class DFIterDataPipe(IterDataPipe[Any]):
    """A stream of data frames."""

    def _is_dfpipe(self) -> bool:
        return True


class DataChunk(list[T]):
    """A batch that a pipe made: a list that knows how to print itself."""

    def __init__(self, items: Iterable[T]) -> None:
        found = list(items)
        super().__init__(found)
        self.items = found

    def as_str(self, indent: str = "") -> str:
        return f"{indent}[{', '.join(str(item) for item in self)}]"

    def raw_iterator(self) -> Iterator[T]:
        yield from self.items
