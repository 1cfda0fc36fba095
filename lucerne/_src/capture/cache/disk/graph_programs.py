"""Programs of single graphs on disk: for parts of functions with breaks, and for functions without
a key of their own (in a notebook, with something in sight that can't be described).

    asked = graphs.Asked(graph, constants, backend, options, stages)
    runner = asked.runner              # None: nobody has stored it
    ...
    asked.keep()

The function runs and is captured in each process; what was made of the graph is found by the graph
itself: its ops, metas and numbers, the bytes of its constants. That saves the passes, the grouping
and the memory plan. Whose lines a step comes from is told by the graph that asks.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from lucerne._src import backends
from lucerne._src.base.process.source_location import Origin
from lucerne._src.capture import faults
from lucerne._src.capture.cache.disk import lookup
from lucerne._src.capture.cache.disk.key import UnstorableError
from lucerne._src.capture.cache.disk.program_codec import ProgramWriter, Reader
from lucerne._src.ir.graph import Graph
from lucerne._src.loops.stages import Stages


class _NoWorld:
    """A graph sees no objects of a process."""

    things = ()

    def number_of(self, thing: Any) -> None:
        return None


class _Writer(ProgramWriter):
    """Origins are told by their number among those of the graph that is compiled."""

    def __init__(self, places: list[Origin]) -> None:
        super().__init__(_NoWorld())  # type: ignore[arg-type]
        self._places = {place: k for k, place in enumerate(places)}

    def _origin(self, origin: Origin) -> int:
        return self._places[origin]


class _Reader(Reader):
    def __init__(self, data: Any, raw: list[bytes], backend: Any, places: list[Origin]) -> None:
        super().__init__(data, raw, _NoWorld(), backend)  # type: ignore[arg-type]
        self._origins = list(places)


class GraphLookup:
    """One question: `runner` is the answer, None if there is none; `keep` stores a program."""

    def __init__(
        self,
        graph: Graph,
        constants: Mapping[int, Any],
        backend: str,
        options: Any,
        stages: Stages,
    ) -> None:
        self.graph, self.constants, self.backend = graph, constants, backend
        self.options, self.stages = options, stages
        self.places = list(dict.fromkeys(n.place for n in graph.nodes if n.place is not None))
        self.runner: Any = None
        self._key: bytes | None = None
        if not lookup.is_on(options):
            return
        try:
            with stages.timed("key"):
                self._key = self._look()
            self.runner = self._found()
        except UnstorableError:
            self._key = None
        except lookup.READING:
            lookup.account.stale += 1
        except Exception as error:
            self.runner = None
            options.tell(error, faults.NO_STORE)

    def _look(self) -> bytes | None:
        around = lookup.surroundings(self.backend)
        if around is None:
            return None
        writer = _Writer(self.places)
        described = writer.described(self.graph)
        lines = [-1 if n.place is None else writer._origin(n.place) for n in self.graph.nodes]
        known = [(k, writer.constant(t)) for k, t in sorted(self.constants.items())]
        data = described, lines, known, writer.tables(), self.options.mode
        text = json.dumps([around, lookup.modes(), *data, sorted(self.options.disable)])
        found = hashlib.sha256(b"graph " + text.encode())
        for _, raw in writer.constants:
            found.update(len(raw).to_bytes(8, "little") + raw)
        return found.digest()

    def _found(self) -> Any:
        payload = None if self._key is None else lookup.folder().read(self._key)
        if payload is None:
            return None
        with self.stages.timed("decode"):
            data, raw = lookup.unpacked(payload)
            reader = _Reader(data, raw, backends.get(self.backend), self.places)
            program = reader.program(data["program"])
        runner = lookup.assembled(program, self.backend, self.stages)
        lookup.account.graphs_found += 1
        return runner

    def keep(self) -> None:
        """Store what was made of the graph."""
        program = self.stages.program
        if self._key is None or self.runner is not None or program is None:
            return
        try:
            with self.stages.timed("store"):
                writer = _Writer(self.places)
                data = {"program": writer.program(program)}
                raw = [r for _, r in writer.constants]
                lookup.folder().write(self._key, lookup.packed(data | writer.tables(), raw))
            lookup.account.graphs_kept += 1
        except (UnstorableError, KeyError):
            return  # a step that has no plain form, or comes from a line of no node
        except Exception as error:  # what was compiled is right
            self.options.tell(error, faults.NO_STORE)
