"""ParameterList and ParameterDict: parameters by position and by name."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any

from lucerne._src.tensor import api as lu
from lucerne.nn.modules.module import Module
from lucerne.nn.parameter import Parameter


def _as_parameter(value: Any) -> Any:
    """Tensors become parameters; anything else is kept as it is."""
    if isinstance(value, lu.Tensor) and not isinstance(value, Parameter):
        return Parameter(value)
    return value


def _described(key: Any, value: Any, kind_of: Any) -> str:
    """One line of the repr; `kind_of` names the type of elements."""
    if not isinstance(value, lu.Tensor):
        return f"  ({key}): Object of type: {type(value).__name__}"
    size = "x".join(str(n) for n in value.size())
    where = "" if value.is_cpu else f" (GPU {value.get_device()})"
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    shown = f"{kind_of(value)} of size {size}{where}"
    return f"  ({key}): {kind} containing: [{shown}]"


class ParameterList(Module):
    """A list of parameters; other objects may stand in it as well.

    >>> import lucerne as torch
    >>> ps = torch.nn.ParameterList([torch.zeros(2), torch.zeros(3)])
    >>> len(ps), type(ps[0]).__name__
    (2, 'Parameter')
    """

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self += values

    def _get_abs_string_index(self, idx: Any) -> str:
        found = operator.index(idx)
        if not -len(self) <= found < len(self):
            raise IndexError(f"index {found} is out of range")
        return str(found % len(self))

    def __getitem__(self, idx: Any) -> Any:
        if isinstance(idx, slice):
            made = type(self)()
            for i in range(*idx.indices(len(self))):
                made.append(self[i])
            return made
        return getattr(self, self._get_abs_string_index(idx))

    def __setitem__(self, idx: Any, param: Any) -> None:
        setattr(self, self._get_abs_string_index(idx), _as_parameter(param))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return iter(self[i] for i in range(len(self)))

    def __iadd__(self, parameters: Iterable[Any]) -> Any:
        return self.extend(parameters)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.isdigit()]

    def append(self, value: Any) -> Any:
        """Add one at the end."""
        index = len(self)
        self._size += 1
        self[index] = value
        return self

    def extend(self, values: Iterable[Any]) -> Any:
        """Add several at the end."""
        if not isinstance(values, Iterable) or isinstance(values, lu.Tensor):
            raise TypeError(
                f"ParameterList.extend should be called with an iterable, but got "
                f"{type(values).__name__}"
            )
        for value in values:
            self.append(value)
        return self

    def extra_repr(self) -> str:
        return "\n".join(_described(i, value, lambda t: t.dtype) for i, value in enumerate(self))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("ParameterList should not be called.")


class ParameterDict(Module):
    """A dictionary of parameters; other objects may stand in it as well.

    >>> import lucerne as torch
    >>> ps = torch.nn.ParameterDict({"w": torch.zeros(2)})
    >>> list(ps.keys())
    ['w']
    """

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def _key_to_attr(self, key: Any) -> str:
        if not isinstance(key, str):
            raise TypeError(
                "Index given to ParameterDict cannot be used as a key as it is not a string (type "
                f"is '{type(key).__name__}'). Open an issue on github if you need non-string keys."
            )
        return key

    def __getitem__(self, key: str) -> Any:
        return getattr(self, self._key_to_attr(key))

    def __setitem__(self, key: str, value: Any) -> None:
        self._keys[key] = None
        setattr(self, self._key_to_attr(key), _as_parameter(value))

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, self._key_to_attr(key))

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self._keys))

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def copy(self) -> Any:
        """Another ParameterDict with the same parameters."""
        return ParameterDict(OrderedDict((k, self[k]) for k in self._keys))

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The parameter of this name, which is `default` if there is none yet."""
        if key not in self:
            self[key] = default
        return self[key]

    def clear(self) -> None:
        """Remove everything."""
        for key in list(self._keys):
            del self[key]

    def pop(self, key: str) -> Any:
        """Take a parameter out."""
        found = self[key]
        del self[key]
        return found

    def popitem(self) -> tuple[str, Any]:
        """Take the last one out, with its name."""
        key, _ = self._keys.popitem()
        self._keys[key] = None
        return key, self.pop(key)

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key in self._keys else default

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> Any:
        """A ParameterDict of these names, all with `default`."""
        return ParameterDict((k, default) for k in keys)

    def keys(self) -> Any:
        return self._keys.keys()

    def items(self) -> Any:
        return ((k, self[k]) for k in self._keys)

    def values(self) -> Any:
        return (self[k] for k in self._keys)

    def update(self, parameters: Any) -> None:
        """Add those of a mapping (a plain dict in sorted order) or of (name, value) pairs."""
        if not isinstance(parameters, Iterable):
            raise TypeError(
                "ParametersDict.update should be called with an iterable of key/value pairs, but "
                f"got {type(parameters).__name__}"
            )
        if isinstance(parameters, (OrderedDict, ParameterDict)):
            pairs: list[Any] = list(parameters.items())
        elif hasattr(parameters, "items"):
            pairs = sorted(parameters.items())
        else:
            pairs = [_pair(j, pair) for j, pair in enumerate(parameters)]
        for key, value in pairs:
            self[key] = value

    def extra_repr(self) -> str:
        return "\n".join(_described(k, value, lu.typename) for k, value in self.items())

    def __call__(self, input: Any) -> Any:
        raise RuntimeError("ParameterDict should not be called.")

    def __or__(self, other: Any) -> Any:
        made = self.copy()
        made.update(other)
        return made

    def __ror__(self, other: Any) -> Any:
        made = other.copy()
        made.update(self)
        return made

    def __ior__(self, other: Any) -> Any:
        self.update(other)
        return self


def _pair(j: int, pair: Any) -> Any:
    if not isinstance(pair, Iterable):
        raise TypeError(
            "ParameterDict update sequence element "
            f"#{j} should be Iterable; is {type(pair).__name__}"
        )
    found = list(pair)
    if len(found) != 2:
        raise ValueError(
            f"ParameterDict update sequence element #{j} has length {len(found)}; 2 is required"
        )
    return found
