"""Lists and dicts that can't be changed: what the arguments of nodes are made of.

A node keeps account of who uses it. A list changed behind its back would make the account wrong, so
changing one says what to do instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

_HELP = (
    "Object of type '{name}' does not support mutation. If you are attempting to modify the kwargs "
    "or args of a torch.fx.Node object,\ninstead create a new copy of it and assign the copy to "
    "the node:\n    new_args = ...  # copy and mutate args\n    node.args = new_args"
)


def _refusing(name: str) -> Callable[..., NoReturn]:
    def refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(_HELP.format(name=type(self).__name__))

    refuse.__name__ = name
    return refuse


class immutable_list(list[Any]):
    """A list whose items stay.

    >>> immutable_list([1, 2]) == [1, 2]
    True
    """

    __delitem__ = _refusing("__delitem__")
    __iadd__ = _refusing("__iadd__")
    __imul__ = _refusing("__imul__")
    __setitem__ = _refusing("__setitem__")
    append = _refusing("append")
    clear = _refusing("clear")
    extend = _refusing("extend")
    insert = _refusing("insert")
    pop = _refusing("pop")
    remove = _refusing("remove")
    reverse = _refusing("reverse")
    sort = _refusing("sort")

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (tuple(self),)


class immutable_dict(dict[Any, Any]):
    """A dict whose items stay.

    >>> immutable_dict(a=1)["a"]
    1
    """

    __delitem__ = _refusing("__delitem__")
    __ior__ = _refusing("__ior__")
    __setitem__ = _refusing("__setitem__")
    clear = _refusing("clear")
    pop = _refusing("pop")
    popitem = _refusing("popitem")
    setdefault = _refusing("setdefault")
    update = _refusing("update")

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self),)
