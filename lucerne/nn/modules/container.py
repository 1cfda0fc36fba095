"""Containers: modules in a row, in a list, in a dictionary."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

from lucerne._src.base.process import notices
from lucerne.nn.modules.module import Module, _addindent
from lucerne.nn.modules.parameters import ParameterDict as ParameterDict
from lucerne.nn.modules.parameters import ParameterList as ParameterList


class Container(Module):
    """The container of old: a module with named children. Use Module itself."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__()
        notices.warn(
            "`nn.Container` is deprecated. All of its functionality is now implemented in "
            "`nn.Module`. Subclass that instead.",
            FutureWarning,
        )
        for name, module in kwargs.items():
            self.add_module(name, module)


def _place(size: int, index: Any) -> int:
    """An index into `size` children, counted from the end when negative."""
    found = operator.index(index)
    if not -size <= found < size:
        raise IndexError(f"index {found} is out of range")
    return found % size


def _renumber(modules: dict[str, Any], items: list[Any]) -> None:
    modules.clear()
    modules.update((str(i), m) for i, m in enumerate(items))


class Sequential(Module):
    """Modules that run one after the other.

    >>> import lucerne as torch
    >>> class Double(torch.nn.Module):
    ...     def forward(self, x):
    ...         return x * 2
    >>> torch.nn.Sequential(Double(), Double())(torch.ones(2))
    tensor([4., 4.])
    """

    _modules: dict[str, Module]

    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], OrderedDict):
            for name, module in args[0].items():
                self.add_module(name, module)
        else:
            for i, module in enumerate(args):
                self.add_module(str(i), module)

    def forward(self, input: Any) -> Any:
        for module in self._modules.values():
            input = module(input)
        return input

    def _key(self, index: Any) -> str:
        return list(self._modules)[_place(len(self._modules), index)]

    def __getitem__(self, idx: Any) -> Any:
        if isinstance(idx, slice):
            return type(self)(OrderedDict(list(self._modules.items())[idx]))
        return self._modules[self._key(idx)]

    def __setitem__(self, idx: int, module: Module) -> None:
        setattr(self, self._key(idx), module)

    def __delitem__(self, idx: Any) -> None:
        keys = list(self._modules)[idx] if isinstance(idx, slice) else [self._key(idx)]
        for key in keys:
            delattr(self, key)
        _renumber(self._modules, list(self._modules.values()))

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.isdigit()]

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, Sequential):
            raise ValueError(
                "add operator supports only objects of Sequential class, but "
                f"{type(other)} is given."
            )
        return Sequential(*self, *other)

    def __iadd__(self, other: Any) -> Any:
        if not isinstance(other, Sequential):
            raise ValueError(
                "add operator supports only objects of Sequential class, but "
                f"{type(other)} is given."
            )
        return self.extend(list(other))

    def __mul__(self, other: int) -> Any:
        return Sequential(*self._times(other))

    __rmul__ = __mul__

    def __imul__(self, other: int) -> Any:
        return self.extend(self._times(other)[len(self) :])

    def _times(self, count: Any) -> list[Any]:
        if not isinstance(count, int):
            raise TypeError(f"unsupported operand type(s) for *: {type(self)} and {type(count)}")
        if count <= 0:
            raise ValueError(f"Non-positive multiplication factor {count} for {type(self)}")
        return list(self) * count

    def append(self, module: Module) -> Any:
        """Add a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def insert(self, index: int, module: Module) -> Any:
        """Put a module before position `index`."""
        if not isinstance(module, Module):
            raise AssertionError(f"module should be of type: {Module}")
        size = len(self)
        if not -size <= index <= size:
            raise IndexError(f"Index out of range: {index}")
        items = list(self)
        items.insert(index + size if index < 0 else index, module)
        _renumber(self._modules, items)
        return self

    def extend(self, sequential: Iterable[Any]) -> Any:
        """Add the modules of another Sequential at the end."""
        for module in list(sequential):
            self.append(module)
        return self

    def pop(self, key: Any) -> Module:
        """Take a module out."""
        found: Module = self[key]
        del self[key]
        return found


class ModuleList(Module):
    """A list of modules that the module holding it knows about.

    >>> import lucerne as torch
    >>> layers = torch.nn.ModuleList([torch.nn.Module(), torch.nn.Module()])
    >>> len(layers), len(layers[:1])
    (2, 1)
    """

    _modules: dict[str, Any]

    def __init__(self, modules: Iterable[Any] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self += modules

    def _get_abs_string_index(self, idx: Any) -> str:
        return str(_place(len(self), idx))

    def __getitem__(self, idx: Any) -> Any:
        if isinstance(idx, slice):
            return type(self)(list(self._modules.values())[idx])
        return self._modules[self._get_abs_string_index(idx)]

    def __setitem__(self, idx: int, module: Module) -> None:
        setattr(self, self._get_abs_string_index(idx), module)

    def __delitem__(self, idx: Any) -> None:
        if isinstance(idx, slice):
            for k in range(len(self._modules))[idx]:
                delattr(self, str(k))
        else:
            delattr(self, self._get_abs_string_index(idx))
        _renumber(self._modules, list(self._modules.values()))

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def __iadd__(self, modules: Iterable[Any]) -> Any:
        return self.extend(modules)

    def __add__(self, other: Iterable[Any]) -> Any:
        combined = ModuleList()
        for i, module in enumerate(chain(self, other)):
            combined.add_module(str(i), module)
        return combined

    def __repr__(self) -> str:
        """Equal neighbours in one line: `(0-3): 4 x Layer()`."""
        shown = [repr(module) for module in self]
        if not shown:
            return self._get_name() + "()"
        groups: list[tuple[int, int, str]] = []
        for i, text in enumerate(shown):
            if groups and groups[-1][2] == text:
                groups[-1] = (groups[-1][0], i, text)
            else:
                groups.append((i, i, text))
        lines = []
        for first, last, text in groups:
            many = f"({first}-{last}): {last - first + 1} x {text}"
            lines.append(_addindent(f"({first}): {text}" if first == last else many, 2))
        return f"{self._get_name()}(\n  " + "\n  ".join(lines) + "\n)"

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.isdigit()]

    def insert(self, index: int, module: Module) -> None:
        """Put a module before position `index`."""
        items = list(self)
        for i in range(len(items), index, -1):
            self._modules[str(i)] = self._modules[str(i - 1)]
        self._modules[str(index)] = module

    def append(self, module: Module) -> Any:
        """Add a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def pop(self, key: Any) -> Module:
        """Take a module out."""
        found: Module = self[key]
        del self[key]
        return found

    def extend(self, modules: Iterable[Any]) -> Any:
        """Add several modules at the end."""
        if not isinstance(modules, Iterable):
            raise TypeError(
                "ModuleList.extend should be called with an iterable, but got "
                + type(modules).__name__
            )
        start = len(self)
        for i, module in enumerate(list(modules)):
            self.add_module(str(start + i), module)
        return self

    forward = Module.forward


class ModuleDict(Module):
    """A dictionary of modules that the module holding it knows about.

    >>> import lucerne as torch
    >>> heads = torch.nn.ModuleDict({"a": torch.nn.Module()})
    >>> list(heads), "a" in heads
    (['a'], True)
    """

    _modules: dict[str, Any]

    def __init__(self, modules: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Any:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: str) -> bool:
        return key in self._modules

    def clear(self) -> None:
        """Remove everything."""
        self._modules.clear()

    def pop(self, key: str) -> Any:
        """Take a module out."""
        found = self[key]
        del self[key]
        return found

    def keys(self) -> Any:
        return self._modules.keys()

    def items(self) -> Any:
        return self._modules.items()

    def values(self) -> Any:
        return self._modules.values()

    def update(self, modules: Any) -> None:
        """Add the modules of a mapping or of (name, module) pairs."""
        if not isinstance(modules, Iterable):
            raise TypeError(
                "ModuleDict.update should be called with an iterable of key/value pairs, but got "
                + type(modules).__name__
            )
        if isinstance(modules, (OrderedDict, ModuleDict, Mapping)):
            for key, module in modules.items():
                self[key] = module
            return
        for j, pair in enumerate(modules):
            key, module = _pair_of("ModuleDict", j, pair)
            self[key] = module

    forward = Module.forward


def _pair_of(name: str, j: int, pair: Any) -> tuple[str, Any]:
    if not isinstance(pair, Iterable):
        raise TypeError(
            f"{name} update sequence element #{j} should be Iterable; is {type(pair).__name__}"
        )
    found = list(pair)
    if len(found) != 2:
        raise ValueError(
            f"{name} update sequence element #{j} has length {len(found)}; 2 is required"
        )
    return found[0], found[1]
