"""The state of the process that a trace must leave as it found it.

A trace runs the user's code up to any point and forgets it: `with` blocks that it entered are never
left, and what was switched inside would stay. So all of it is noted before and put back afterwards.
A function that ends with a switch thrown (`torch.set_grad_enabled(False)`) is no graph: it would be
thrown once and never again.

(Generators are not among it: a recorder draws nothing, and what draws elsewhere is a break.)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from lucerne._src.base import defaults
from lucerne._src.base.defaults import DefaultDevice
from lucerne._src.base.device import entered
from lucerne._src.base.process import tables
from lucerne._src.base.process.structure_version import note_change
from lucerne._src.ir import dispatch
from lucerne._src.tensor.autograd.node import anomaly
from lucerne._src.tensor.autograd.saved import hooks
from lucerne._src.tensor.eager.autocast import Thread
from lucerne._src.tensor.eager.specialize import Observation
from lucerne._src.tensor.settings import _Flags, get_num_threads, set_num_threads

_state = dispatch.state

_SINGLE: tuple[tuple[Any, str], ...] = (
    (_state, "asked_grad"), (_state, "inference"), (_state, "cast"), (_state, "special"),
    (_state, "overrides_enabled"), (_state, "backward_of"), (_state, "_grad_enabled"),
    (hooks, "disabled"), (anomaly, "enabled"), (anomaly, "check_nan"),
    (DefaultDevice, "value"),
    (_Flags, "deterministic"), (_Flags, "warn_only"), (_Flags, "matmul_precision"),
    (_Flags, "warn_always"), (_Flags, "interop_threads"),
)  # fmt: skip
"""(owner, attribute) of each switch."""


def _stacks() -> list[list[Any]]:
    """What `with` blocks push something on."""
    return [
        _state.call_level, _state.kernel_level, _state.forward, hooks.stack, entered,
        *[getattr(owner, name) for owner, name in tables.stacks],
    ]  # fmt: skip


class ProcessState:
    """Switches and stacks, as they are now; `restore` makes them so again."""

    def __init__(self) -> None:
        loaded = [(switch.owner, switch.name) for switch in tables.switches]
        self._single = [(at, getattr(*at)) for at in (*_SINGLE, *loaded)]
        self._loaded = len(loaded)
        self._tables = [(table, dict(table)) for table in tables.tables]
        self._stacks = [(stack, list(stack)) for stack in _stacks()]
        self._dtype = defaults.get_default_dtype()
        self._threads = get_num_threads()
        cast = Thread.now
        self._cast = dict(cast.enabled), dict(cast.dtypes), cast.cache, cast.nesting

    def _switches(self) -> Iterator[tuple[tuple[Any, str], Any]]:
        """Each switch with its value; of those in modules that were loaded since, the first."""
        yield from self._single
        for switch in tables.switches[self._loaded :]:
            yield (switch.owner, switch.name), switch.first

    def is_same(self) -> bool:
        """Whether all of it is as it was."""
        cast = Thread.now
        return (
            all(
                getattr(owner, name) is x or getattr(owner, name) == x
                for (owner, name), x in self._switches()
            )
            and all(table == kept for table, kept in self._tables)
            and all(stack == kept for stack, kept in self._stacks)
            and defaults.get_default_dtype() is self._dtype
            and get_num_threads() == self._threads
            and (cast.enabled, cast.dtypes, cast.cache, cast.nesting) == self._cast
        )

    def restore(self) -> None:
        """Set them as they were."""
        for (owner, name), x in self._switches():
            if getattr(owner, name) is not x:
                setattr(owner, name, x)
        for table, entries in self._tables:
            if table != entries:
                table.clear()
                table.update(entries)
                note_change()
        for stack, kept in self._stacks:
            if stack != kept:
                stack[:] = kept
        defaults.set_default_dtype(self._dtype)
        if get_num_threads() != self._threads:
            set_num_threads(self._threads)
        cast = Thread.now
        enabled, dtypes, cast.cache, cast.nesting = self._cast
        cast.enabled, cast.dtypes = dict(enabled), dict(dtypes)
        _state.refresh()


@contextmanager
def quiet() -> Iterator[None]:
    """Nothing outside is watched or remembered while a function is captured."""
    watched, Observation.current = Observation.current, None
    packing, hooks.stack = hooks.stack, []  # what a program saves goes through these
    cast: Any = dispatch.state.cast
    kept = getattr(cast, "kept", None)
    if kept is not None:
        cast.kept = {}
    with ExitStack() as stack:
        stack.callback(setattr, Observation, "current", watched)
        stack.callback(setattr, hooks, "stack", packing)
        if kept is not None:
            stack.callback(setattr, cast, "kept", kept)
        yield
