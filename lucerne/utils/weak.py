"""`lucerne.utils.weak`: weak references and dicts that compare their keys by identity.

Tensors compare element by element, so they cannot be keys of Python's own weak dicts.
"""

from __future__ import annotations

import collections.abc
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

from lucerne._src.tensor.tensor import Tensor


class WeakIdRef(weakref.ref):  # type: ignore[type-arg]
    """A weak reference that is equal to others to the same object, and hashed by it."""

    __slots__ = ("_id",)

    def __init__(self, key: Any, callback: Any = None) -> None:
        self._id = id(key)
        super().__init__(key, callback)  # type: ignore[call-arg]

    def __hash__(self) -> int:
        return self._id

    def __eq__(self, other: object) -> bool:
        mine = self()
        if mine is not None and isinstance(other, weakref.ref):
            return mine is other()
        return self is other

    def __ne__(self, other: object) -> bool:
        return not self == other  # (weakref.ref has one of its own, which asks the objects)


class WeakIdKeyDictionary(collections.abc.MutableMapping[Any, Any]):
    """A dict with weak keys, by identity.

    >>> import lucerne
    >>> t = lucerne.ones(2)
    >>> d = WeakIdKeyDictionary({t: "kept as long as t"})
    >>> d[t], len(d)
    ('kept as long as t', 1)
    >>> del t
    >>> len(d)
    0
    """

    def __init__(
        self, dict: Mapping[Any, Any] | None = None, ref_type: type[WeakIdRef] = WeakIdRef
    ) -> None:
        self.data: dict_[WeakIdRef, Any] = {}
        self.ref_type = ref_type
        if dict is not None:
            self.update(dict)

    def __getitem__(self, key: Any) -> Any:
        return self.data[self.ref_type(key)]

    def __setitem__(self, key: Any, value: Any) -> None:
        me = weakref.ref(self)

        def gone(ref: Any) -> None:
            there = me()
            if there is not None:
                there.data.pop(ref, None)

        self.data[self.ref_type(key, gone)] = value

    def __delitem__(self, key: Any) -> None:
        del self.data[self.ref_type(key)]

    def __contains__(self, key: object) -> bool:
        try:
            return self.ref_type(key) in self.data
        except TypeError:  # it has no weak references
            return False

    def __iter__(self) -> Iterator[Any]:
        return iter([key for ref in list(self.data) if (key := ref()) is not None])

    def __len__(self) -> int:
        return len(self.data)


dict_ = dict


class WeakTensorKeyDictionary(WeakIdKeyDictionary):
    """The same, for tensors."""


class TensorWeakRef:
    """A weak reference to a tensor."""

    def __init__(self, tensor: Any) -> None:
        if not isinstance(tensor, Tensor):
            raise TypeError(f"TensorWeakRef: expected a tensor, got {type(tensor).__name__}")
        self.ref = WeakIdRef(tensor)

    def __call__(self) -> Any:
        return self.ref()


WeakTensorRef = WeakIdRef
