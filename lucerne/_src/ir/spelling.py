"""NumPy's spelling of two parameters: `axis=` is taken for `dim=`, `keepdims=` for `keepdim=`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from lucerne._src.ir import argument_errors
from lucerne._src.ir.signature import parameter_names

_NUMPY_NAMES = {"axis": "dim", "keepdims": "keepdim"}


def takes_numpy_names(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function with parameter `dim` be called with `axis=` too; others stay as they are."""
    names = parameter_names(function)
    accepted = {
        given: ours for given, ours in _NUMPY_NAMES.items() if ours in names and given not in names
    }
    if not accepted:
        return function

    @functools.wraps(function)
    def renamed(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            for given, ours in accepted.items():
                if given in kwargs:
                    if ours in kwargs:
                        raise TypeError(f"{function.__name__}(): got both {given}= and {ours}=")
                    kwargs[ours] = kwargs.pop(given)
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            mistake = argument_errors.named_keywords(error, name, function)
            if mistake is None:
                raise
            raise mistake from None

    name = inspect.unwrap(function).__name__.removeprefix("functional_")

    return renamed
