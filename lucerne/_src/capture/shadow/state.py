"""The world around one call: written down, and put back so that the call can be made again.

That is: the bytes of all tensors a function can get at (arguments, parameters, buffers, gradients,
the optimizers' states), who is whose gradient, what containers and attributes hold, the state of
the optimizers, and where random numbers stand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from lucerne._src.capture.effects.stores import StoreSnapshot, put_back
from lucerne._src.capture.guards.reachable import ReachableState
from lucerne._src.ir.graph import Graph
from lucerne._src.tensor.autograd.state import state_of
from lucerne._src.tensor.base import TensorBase
from lucerne._src.tensor.random.api import default_generator


class Surroundings:
    """What a call with `leaves` may read and write, as it is now.

    `reach`: what the function gets at without its arguments. `more`: tensors that only the compiled
    version knows of, and `graph`, for the generators that its nodes draw from.
    """

    def __init__(
        self,
        reach: ReachableState,
        leaves: Sequence[Any],
        more: Sequence[Any],
        graph: Graph | None = None,
    ) -> None:
        self.leaves, self.reach = leaves, reach
        self.tables = [
            StoreSnapshot(t.name, t.store, is_attributes=t.is_attributes, watched=t.watched)
            for t in reach.tables
        ]
        """What containers, attributes and variables hold now."""
        self.named: dict[int, tuple[str, Any]] = {}
        """By id of a tensor: its name and itself."""
        for k, x in enumerate(leaves):
            if isinstance(x, TensorBase):
                self._name(f"argument {k}", x)
        for name, t in self._reached():
            self._name(name, t)
        for t in more:
            self._name("a tensor of the function", t)
        self.generators = [default_generator, *_generators(graph)]
        self._note()

    def _name(self, name: str, t: Any) -> None:
        self.named.setdefault(id(t), (name, t))

    def _reached(self) -> Iterator[tuple[str, Any]]:
        for table in self.tables:
            keys = table.keys or range(len(table.items))
            for key, x in zip(keys, table.items, strict=False):
                if isinstance(x, TensorBase):
                    where = f"{table.name}.{key}" if table.is_attributes else table.name
                    yield where, x
        for t in self.reach.tensors.values():
            yield "a tensor of the function", t
        for o in self.reach.optimizers.values():
            for p, state in o.state.items():
                for key, x in state.items():
                    if isinstance(x, TensorBase):
                        owner = self.named.get(id(p), ("a parameter", p))[0]
                        yield f"the optimizer's {key} of {owner}", x

    # ---- noting and putting back ---------------------------------------------------------------

    def _note(self) -> None:
        self._grads = [
            (t, None if t._auto is None else t._auto.grad) for _, t in self.named.values()
        ]
        for t, grad in self._grads:
            if grad is not None:
                self._name(f"the gradient of {self.named[id(t)][0]}", grad)
        self._bytes: dict[int, tuple[Any, Any]] = {}
        for _, t in self.named.values():
            storage = t._storage
            if id(storage.buffer) not in self._bytes and storage.buffer is not None:
                self._bytes[id(storage.buffer)] = storage, np.array(storage.host())
        self._states = [
            (o, {p: dict(s) for p, s in o.state.items()}, [dict(g) for g in o.param_groups])
            for o in self.reach.optimizers.values()
        ]
        self._random = [g.state_bytes() for g in self.generators]

    def put_back(self) -> None:
        """Everything as it was when this was made."""
        for storage, before in self._bytes.values():
            now = storage.host()
            if not np.array_equal(now, before):
                storage.write(0, before)
                storage.note_write()
        for t, grad in self._grads:
            if grad is not None or (t._auto is not None and t._auto.grad is not None):
                state_of(t).grad = grad
        for o, states, groups in self._states:
            for p in [p for p in o.state if p not in states]:
                del o.state[p]
            for p, s in states.items():
                o.state[p].clear()
                o.state[p].update(s)
            for group, before in zip(o.param_groups, groups, strict=False):
                group.clear()
                group.update(before)
        put_back(self.tables)
        self.rewind()

    def rewind(self) -> None:
        """Random numbers as they stood."""
        for g, state in zip(self.generators, self._random, strict=True):
            g.load_state_bytes(state)

    def tensors(self) -> list[tuple[str, Any]]:
        return list(self.named.values())


def _generators(graph: Graph | None) -> list[Any]:
    """Those that nodes of a graph draw from, besides the default one."""
    found: dict[int, Any] = {}
    for node in graph.nodes if graph is not None else ():
        for a in node.args:
            if hasattr(a, "load_state_bytes") and a is not default_generator:
                found[id(a)] = a
    return list(found.values())
