"""`torch.ops.namespace.name.overload`: operators under the names that schemas give them.

A packet (`torch.ops.mylib.f`) has one overload for each schema of that name; the first one is
called `default`. Which object stands behind an overload is the business of who enters it: a custom
op of `lucerne.library`, or an op of the table (`torch.ops.aten`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from lucerne._src.ir.schema import Schema

Told = Schema | Callable[[], Schema] | None


class OpOverload:
    """One operator with one schema: what `__torch_dispatch__` is given as `func`.

    >>> import lucerne as torch
    >>> torch.ops.aten.add.Tensor
    <OpOverload(op='aten.add', overload='Tensor')>
    >>> torch.ops.aten.add.Tensor(torch.ones(2), 1)
    tensor([2., 2.])
    """

    def __init__(
        self, packet: OpOverloadPacket, overload: str, schema: Told, call: Any, op: Any
    ) -> None:
        self.overloadpacket = packet
        self._overloadname = overload
        self._told = schema
        self._call: Callable[..., Any] = call
        self.op = op
        """The entry of the op table that runs, if there is one."""
        self.__name__ = f"{packet.__name__}.{overload}"
        self.__qualname__ = self.__name__
        self.__module__ = packet.__module__
        self.tags: list[Any] = []

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    @property
    def _schema(self) -> Schema | None:
        """What it takes and returns; read when somebody asks, for there are many."""
        if callable(self._told):
            self._told = self._told()
        return self._told

    def __repr__(self) -> str:
        return (
            f"<OpOverload(op='{self.namespace}.{self.overloadpacket.__name__}', "
            f"overload='{self._overloadname}')>"
        )

    def __str__(self) -> str:
        return f"{self.namespace}.{self.__name__}"

    def __reduce__(self) -> tuple[Any, ...]:
        return find, (self.namespace, self.overloadpacket.__name__, self._overloadname)

    def __deepcopy__(self, memo: Any) -> OpOverload:
        return self

    @property
    def namespace(self) -> str:
        return self.overloadpacket.namespace

    def name(self) -> str:
        """`mylib::f`, or `aten::add.Tensor`."""
        base = f"{self.namespace}::{self.overloadpacket.__name__}"
        return base if self._overloadname == "default" else f"{base}.{self._overloadname}"

    @property
    def is_view(self) -> bool:
        return getattr(self.op, "kind", "") == "view"

    def has_kernel_for_dispatch_key(self, key: Any) -> bool:
        return str(key).rpartition(".")[2].upper() == "CPU"


class OpOverloadPacket:
    """All overloads of one name; calling it calls the one that fits (or the only one)."""

    def __init__(self, namespace: str, name: str) -> None:
        self.namespace = namespace
        self.__name__ = self.__qualname__ = name
        self.__module__ = f"torch.ops.{namespace}"
        self._overloads: dict[str, OpOverload] = {}
        self._call: Callable[..., Any] | None = None

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self.namespace}.{self.__name__}')>"

    def __str__(self) -> str:
        return f"{self.namespace}.{self.__name__}"

    def __reduce__(self) -> tuple[Any, ...]:
        return find, (self.namespace, self.__name__, None)

    def __deepcopy__(self, memo: Any) -> OpOverloadPacket:
        return self

    def enter(self, overload: str, schema: Told, call: Any, op: Any = None) -> OpOverload:
        """Make an overload. An empty name is `default`."""
        made = OpOverload(self, overload or "default", schema, call, op)
        self._overloads[made._overloadname] = made
        return made

    def overloads(self) -> list[str]:
        return list(self._overloads)

    def __iter__(self) -> Iterator[str]:
        return iter(self._overloads)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if self._call is not None:
            return self._call(*args, **kwargs)
        errors: list[str] = []
        for overload in list(self._overloads.values()):
            try:
                return overload(*args, **kwargs)
            except SignatureError as error:
                if len(self._overloads) == 1:
                    raise
                errors.append(str(error))
        listed = "\n".join(errors)
        raise RuntimeError(f"no overload of {self} takes these arguments:\n{listed}")

    def __getattr__(self, name: str) -> Any:
        overloads = self.__dict__.get("_overloads", {})
        if name in overloads:
            return overloads[name]
        if name.startswith("__"):
            raise AttributeError(f"'{self}' can't have an overload name beginning with '__'")
        raise AttributeError(f"The underlying op of '{self}' has no overload name '{name}'")


class SignatureError(RuntimeError):
    """Arguments that do not fit a schema."""


class OpNamespace:
    """`torch.ops.mylib`. `supply` makes packets when they are first asked for."""

    def __init__(
        self, name: str, supply: Callable[[str], OpOverloadPacket | None] | None = None
    ) -> None:
        self.name = name
        self._supply = supply
        self._packets: dict[str, OpOverloadPacket] = {}

    def __repr__(self) -> str:
        return f"<module 'torch.ops.{self.name}' from 'torch.ops'>"

    def __reduce__(self) -> tuple[Any, ...]:
        return namespace, (self.name,)

    def __deepcopy__(self, memo: Any) -> OpNamespace:
        return self

    def __getattr__(self, name: str) -> Any:
        packets = self.__dict__.get("_packets")
        if packets is None or name.startswith("__"):
            raise AttributeError(name)
        if name not in packets:
            made = None if self._supply is None else self._supply(name)
            if made is None:
                raise AttributeError(
                    f"'_OpNamespace' '{self.name}' object has no attribute '{name}'"
                )
            packets[name] = made
        return packets[name]

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._packets})

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._packets))

    def packet(self, name: str) -> OpOverloadPacket:
        """The packet of that name, made if there is none."""
        if name not in self._packets:
            self._packets[name] = OpOverloadPacket(self.name, name)
        return self._packets[name]

    def drop(self, name: str, overload: str) -> None:
        """Forget an overload (its library was closed)."""
        known = self._packets.get(name)
        if known is not None:
            known._overloads.pop(overload or "default", None)
            if not known._overloads:
                del self._packets[name]


_NAMESPACES: dict[str, OpNamespace] = {}


def namespace(name: str, supply: Any = None) -> OpNamespace:
    """The namespace of that name, made if there is none."""
    if name not in _NAMESPACES:
        _NAMESPACES[name] = OpNamespace(name, supply)
    return _NAMESPACES[name]


def known_namespace(name: str) -> OpNamespace | None:
    return _NAMESPACES.get(name)


def find(space: str, name: str, overload: str | None) -> Any:
    """An overload (or a packet) by its names: what a pickle holds."""
    packet = getattr(namespace(space), name)
    return packet if overload is None else getattr(packet, overload)
