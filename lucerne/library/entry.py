"""A custom op as an entry of the op table, and how it runs inside a compiled program.

The entry is functional: what the user's function writes to is copied first, and the new values are
further results, which are then written back by ordinary ops. So captures, transforms and compiled
programs, which know no custom op, know what it does to memory.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from lucerne._src import backends
from lucerne._src.backends.contract.backend import Executable, TensorState
from lucerne._src.base.process.source_location import GENERATED
from lucerne._src.ir import dispatch
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Node, Value, map_values
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.schema import Schema, SchemaType
from lucerne._src.tensor.autograd.modes import no_grad
from lucerne._src.tensor.base import TensorBase, make_tensor
from lucerne._src.tensor.storage import Storage
from lucerne.library.binding import tensors_of
from lucerne.library.fake import NoFakeError, as_fakes, faking, metas_in


class Entry:
    """What computes the op of the table (`ir.op.Hosted`). `owner` is the custom op."""

    def __init__(self, owner: Any, schema: Schema) -> None:
        self.owner, self.schema = owner, schema
        self.op = self._made()
        op_.register_custom(self.op)

    def _made(self) -> op_.Op:
        space, _, name = self.schema.name.partition("::")
        over = f"_{self.schema.overload_name}" if self.schema.overload_name else ""
        op = op_.Op(
            f"{name}{over}", op_.STRUCTURAL, _prototype(self.schema), meta=self._metas,
            namespace=f"ops.{space}", vjp={}, out=False,
        )  # fmt: skip
        op.host = self
        op.doc = str(self.schema)
        op.public = _Public(self)
        return op

    # ---- eager -----------------------------------------------------------------------------------

    def run(self, args: tuple[Any, ...]) -> Any:
        """Results and new values of what is written, all tensors."""
        given, fresh = self._apart(args)
        found = flat_tensors(self.schema, self.owner.compute(given), fresh)
        return found[0] if len(found) == 1 else found

    def _apart(self, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], list[Any]]:
        """Arguments with copies of those that are written; and the copies."""
        written = self.schema.written
        if not written:
            return args, []
        fresh: list[Any] = []

        def copied(x: Any) -> Any:
            if isinstance(x, tuple):
                return tuple(copied(y) for y in x)
            if isinstance(x, TensorBase):
                fresh.append(x.clone())  # type: ignore[attr-defined]
                return fresh[-1]
            return x

        return tuple(copied(a) if i in written else a for i, a in enumerate(args)), fresh

    # ---- without numbers -------------------------------------------------------------------------

    def _metas(self, *args: Any) -> tuple[TensorMeta, ...]:
        """Metas of the results, from the fake implementation."""
        given = tuple(as_fakes(a) for a in args)
        fresh = [m for i in self.schema.written for m in _metas_among(args[i])]
        if not _returned_tensors(self.schema):
            return tuple(fresh)
        with faking(self.schema.name), no_grad():
            result = self.owner.fake(given)
        found = metas_in(result)
        flat = [m for r in _as_results(self.schema, found) for m in _metas_among(r)]
        return (*flat, *fresh)

    # ---- in a compiled program -------------------------------------------------------------------

    def executable(self, node: Node) -> Executable:
        """Runs the user's function on tensors over the memory of the program."""

        def execute(inputs: Sequence[Any], outputs: Sequence[TensorState]) -> None:
            left = iter(inputs)

            def placed(value: Value) -> Any:
                x = next(left)
                return as_tensor(x) if hasattr(x, "_meta") else x

            args = tuple(map_values(placed, node.args))
            with dispatch.unseen(), no_grad():
                result = self.run(args)
                found = result if isinstance(result, tuple) else (result,)
                for r, o in zip(found, outputs, strict=True):
                    self._check(r, o)
                    as_tensor(o).copy_(r)
            memories = [t._storage for t in tensors_of(args)]
            del args, result, found
            for memory in memories:
                _keep_alive(memory)

        return execute

    def _check(self, result: Any, place: TensorState) -> None:
        meta, said = result._meta, place._meta
        if tuple(meta.shape) != tuple(said.shape) or meta.dtype is not said.dtype:
            raise RuntimeError(
                f"{self.schema.name}: the fake implementation promised {said.dtype} of shape "
                f"{list(said.shape)}, but the kernel returned {meta.dtype} of shape "
                f"{list(meta.shape)}. Make register_fake say what the kernel does."
            )


class _Public:
    """The entry called with all its arguments in order: what a graph writes as a call."""

    def __init__(self, entry: Entry) -> None:
        self._entry = entry
        self.__name__ = self.__qualname__ = entry.schema.name.rpartition(":")[2]
        self.__module__ = f"torch.ops.{entry.schema.name.partition(':')[0]}"

    @property
    def op(self) -> op_.Op:
        return self._entry.op

    def __call__(self, *args: Any) -> Any:
        return dispatch.entry.run(self._entry.op, args)


def _keep_alive(memory: Storage) -> None:
    """If the user's function kept a tensor of the program, give it memory of its own: that of the
    program will hold other numbers soon."""
    # Who refers to it: the list of the caller, its loop, our argument, and `getrefcount`.
    if sys.getrefcount(memory) > _NOBODY and memory.owner is not None:
        backend = backends.get(memory.device.type)
        memory.buffer = backend.from_host(np.array(backend.to_host(memory.buffer)))
        memory.address = backend.address(memory.buffer)


_NOBODY = 4


def as_tensor(place: Any) -> Any:
    """A tensor over the memory of a place of a program."""
    if isinstance(place, TensorBase):
        return place
    storage, meta = place._storage, place._meta
    if not isinstance(storage, Storage):
        storage = Storage(storage.buffer, storage.nbytes, meta.device, owner=place)
    return make_tensor(storage, place._offset, meta)


def _metas_among(x: Any) -> list[TensorMeta]:
    if isinstance(x, TensorMeta):
        return [x]
    return [m for y in x for m in _metas_among(y)] if isinstance(x, tuple) else []


_ANNOTATIONS = {"Generator": "Opaque"}


def _annotation(type: SchemaType) -> str:
    if type.is_tensor:
        return "TensorList" if type.is_list else "Tensor | None" if type.optional else "Tensor"
    return _ANNOTATIONS.get(type.name, "Static")


def _prototype(schema: Schema) -> Any:
    """A function with the arguments of the schema, for its signature alone."""
    heads = ", ".join(f"{a.name}: {_annotation(a.type)!r}" for a in schema.arguments)
    scope: dict[str, Any] = {}
    text = f"def op({heads}):\n    return None\n"
    exec(compile(text, GENERATED, "exec", dont_inherit=True), scope)
    made = scope["op"]
    made.__module__ = "lucerne.library"
    return made


def _returned_tensors(schema: Schema) -> list[Any]:
    """The results that are not arguments given back."""
    return [r for r in schema.returns if r.type.is_tensor and not r.is_write]


def _as_results(schema: Schema, found: Any) -> list[Any]:
    """What a function returned, one entry for each result of the schema."""
    if not schema.returns:
        return []
    if len(schema.returns) == 1:
        return [tuple(found) if isinstance(found, list) else found]
    if not isinstance(found, (tuple, list)) or len(found) != len(schema.returns):
        got = len(found) if isinstance(found, (tuple, list)) else f"one {type(found).__name__}"
        raise RuntimeError(
            f"{schema.name}: expected {len(schema.returns)} results, as the schema says, but got "
            f"{got}. Schema: {schema}"
        )
    return list(found)


def flat_tensors(schema: Schema, found: Any, fresh: list[Any]) -> tuple[Any, ...]:
    """The tensors that a call returned, then the copies it wrote to."""
    flat: list[Any] = []
    for r, value in zip(schema.returns, _as_results(schema, found), strict=True):
        if r.is_write:
            continue
        if not r.type.is_tensor:
            raise NoFakeError(
                f"{schema.name} returns a number, which a graph can't hold: in compiled functions "
                "the call runs as Python, between two graphs"
            )
        for x in value if r.type.is_list else (value,):
            if not isinstance(x, TensorBase):
                raise RuntimeError(
                    f"{schema.name}: expected a Tensor as result, got {type(x).__name__}. Schema: "
                    f"{schema}"
                )
            flat.append(x)
    return (*flat, *fresh)


def rebuilt(schema: Schema, flat: tuple[Any, ...], args: tuple[Any, ...]) -> Any:
    """Tensors of a call of the entry as the schema groups them; what was written follows them."""
    lists = [r for r in schema.returns if r.type.is_list and not r.is_write]
    if len(lists) > 1:
        raise NoFakeError(f"{schema.name} returns several lists, which a graph can't hold")
    single = sum(not r.type.is_list and not r.is_write for r in schema.returns)
    wrote = sum(len(_tensors_among(args[i])) for i in schema.written)
    count = len(flat) - wrote - single
    left = iter(flat)
    results = [
        aliased(schema, r, args)
        if r.is_write
        else [next(left) for _ in range(count)]
        if r.type.is_list
        else next(left)
        for r in schema.returns
    ]
    new = list(left)
    for i in schema.written:
        for target in _tensors_among(args[i]):
            target.copy_(new.pop(0))
    if not results:
        return None
    return results[0] if len(results) == 1 else tuple(results)


def aliased(schema: Schema, result: Any, args: tuple[Any, ...]) -> Any:
    """The argument that a result with a mark `(a!)` is."""
    for a, value in zip(schema.arguments, args, strict=True):
        if a.alias == result.alias:
            return value
    raise RuntimeError(f"{schema.name}: no argument is marked ({result.alias}!). Schema: {schema}")


def _tensors_among(x: Any) -> list[Any]:
    if isinstance(x, TensorBase):
        return [x]
    return [t for y in x for t in _tensors_among(y)] if isinstance(x, (tuple, list)) else []
