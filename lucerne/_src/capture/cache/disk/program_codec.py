"""Programs as plain data, and back: numbers, strings and lists, with the bytes of constants beside.

Nothing that is read is executed: ops are looked up in the table, everything else is numbers and
words with a known meaning. What has no such form makes a program one that is not stored.
"""

from __future__ import annotations

import math
import os
import struct
from typing import Any

import numpy as np

from lucerne._src.backends.contract.control_flow import SubProgram
from lucerne._src.backends.contract.step_runner import shape_of
from lucerne._src.base import dtype as dt
from lucerne._src.base import layout as lo
from lucerne._src.base.device import device
from lucerne._src.base.process.source_location import Origin
from lucerne._src.base.shape import Size
from lucerne._src.capture.cache.disk.code_digests import is_standard
from lucerne._src.capture.cache.disk.key import CacheKey, UnstorableError
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Graph, Node, Value
from lucerne._src.ir.meta import NumberMeta, TensorMeta, make_meta
from lucerne._src.ir.program import NumberArgument, Place, Program, Step
from lucerne._src.loops.run import make_runner
from lucerne._src.tensor.base import new_tensor
from lucerne._src.tensor.random.generator import Generator, default_generator

_PLAIN = frozenset((bool, int, str, type(None)))
_KINDS: dict[str, type] = {k.__name__: k for k in (bool, int, float, complex)}
_FORMATS = {
    repr(x): x for x in vars(lo).values() if isinstance(x, (lo.layout, lo.memory_format))
}  # fmt: skip
_DTYPES = {x.name: x for x in vars(dt).values() if isinstance(x, dt.dtype)}
_MOST_CONSTANT_BYTES = 1 << 26
_BITS = struct.Struct("<d")


class StaleError(Exception):
    """Stored data that does not fit: it is not used."""


class ProgramWriter:
    """Collects the tables that the data refers to by number."""

    def __init__(self, world: CacheKey) -> None:
        self.world = world
        self.metas: list[Any] = []
        self.graphs: list[Any] = []
        self.origins: list[Any] = []
        self.constants: list[tuple[int, bytes]] = []
        """(number of the meta, bytes)."""
        self._metas: dict[TensorMeta, int] = {}
        self._graphs: dict[str, int] = {}
        self._shapes: dict[Any, int] = {}
        """The same by what an executable depends on: no text has to be made to find it."""
        self._origins: dict[Origin, int] = {}

    # ---- values --------------------------------------------------------------------------------

    def meta(self, meta: Any) -> Any:
        """Of a value: a tensor's by number, a number's type by its name, None for an object."""
        if isinstance(meta, TensorMeta):
            found = self._metas.get(meta)
            if found is None:
                found = self._metas[meta] = len(self.metas)
                shape, strides = list(map(int, meta.shape)), list(map(int, meta.strides))
                self.metas.append([meta.dtype.name, shape, strides, str(meta.device), meta.flipped])
            return found
        if isinstance(meta, NumberMeta):
            return f"any {meta.kind.__name__}"
        if meta is None or (isinstance(meta, type) and _KINDS.get(meta.__name__) is meta):
            return None if meta is None else meta.__name__
        if type(meta) in _KINDS.values() or isinstance(meta, Generator):  # the thing itself
            return ["is", self.pack(meta)]
        raise UnstorableError(f"a program reads a {meta!r}")

    def pack(self, x: Any) -> Any:
        """An argument of an op, or another constant."""
        kind = type(x)
        if kind in _PLAIN:
            return x
        if kind is float:
            return ["nan", _BITS.pack(x).hex()] if math.isnan(x) else x
        if kind is Value:
            return ["v", x.index]
        if kind is tuple or kind is list or kind is Size:
            word = "t" if kind is tuple else "l" if kind is list else "z"
            return [word, *map(self.pack, x)]
        if kind is complex:
            return ["c", self.pack(x.real), self.pack(x.imag)]
        if kind is slice:
            return ["s", self.pack(x.start), self.pack(x.stop), self.pack(x.step)]
        return self._pack_word(x)

    def _pack_word(self, x: Any) -> Any:
        if isinstance(x, dt.dtype):
            return ["d", x.name]
        if isinstance(x, device):
            return ["D", x.type, x.index]
        if repr(x) in _FORMATS and _FORMATS[repr(x)] is x:
            return ["f", repr(x)]
        if x is ...:
            return ["e"]
        if type(x) is bytes:
            return ["b", x.hex()]
        if type(x) is SubProgram:
            return ["program", self._graph(x.graph), self.program(x.program)]
        if isinstance(x, Generator):
            number = -1 if x is default_generator else self.world.number_of(x)
            if number is not None:
                return ["g", number]
        raise UnstorableError(f"a program holds a {type(x).__name__}, which has no plain form")

    # ---- programs ------------------------------------------------------------------------------

    def program(self, program: Program) -> Any:
        return {
            "arguments": [self.meta(m) for m in program.arguments],
            "results": [self.meta(m) for m in program.results],
            "constants": [self.constant(t) for t in program.constants],
            "numbers": program.numbers,
            "arena": program.arena,
            "written": sorted(program.written),
            "steps": [self._step(s) for s in program.steps],
        }

    def _step(self, step: Step) -> Any:
        outputs = [self._place(p) for p in step.outputs]
        origins = [self._origin(o) for o in step.origins]
        return [self._graph(step.graph), list(map(self._item, step.inputs)), outputs, origins]

    def _item(self, x: Any) -> Any:
        if type(x) is Place:
            return ["p", *self._place(x)]
        return ["n", x.index] if type(x) is NumberArgument else self.pack(x)

    def _place(self, p: Place) -> list[Any]:
        return [p.kind, p.index, p.offset, self.meta(p.meta)]

    def _origin(self, origin: Origin) -> int:
        found = self._origins.get(origin)
        if found is None:
            found = self._origins[origin] = len(self.origins)
            self.origins.append(list(origin))
        return found

    def _graph(self, graph: Graph) -> int:
        """Equal graphs are written once."""
        if graph.writes or not all(isinstance(v.meta, TensorMeta) for v in graph.inputs):
            return self._new_graph(graph)  # (of numbers an executable asks the type alone)
        shape = shape_of(graph)
        found = self._shapes.get(shape)
        if found is None:
            found = self._shapes[shape] = self._new_graph(graph)
        return found

    def _new_graph(self, graph: Graph) -> int:
        *made, writes = self.described(graph)
        if writes:
            raise UnstorableError("a step of the program writes to its inputs")
        text = repr(made)
        found = self._graphs.get(text)
        if found is None:
            found = self._graphs[text] = len(self.graphs)
            self.graphs.append(made)
        return found

    def described(self, graph: Graph) -> list[Any]:
        """A graph's inputs, nodes, outputs and writes."""
        numbers: dict[int, int] = {}
        for v in [*graph.inputs, *(v for n in graph.nodes for v in n.outputs)]:
            numbers[v.index] = len(numbers)
        return [
            [self.meta(v.meta) for v in graph.inputs],
            [self._node(n, numbers) for n in graph.nodes],
            [numbers[v.index] for v in graph.outputs],
            [[numbers[v.index] for v in pair] for pair in graph.writes],
        ]

    def _node(self, node: Node, numbers: dict[int, int]) -> Any:
        if not is_standard(node.op.body.__module__):
            raise UnstorableError(f"the op {node.op.qualified} is not one of this package")
        name: Any = node.op.qualified
        if node.op.host is not None:
            number = self.world.number_of(getattr(node.op.host, "owner", None))
            if number is None:
                raise UnstorableError(
                    f"the custom op {name} is found in a way that the key does not see: name its "
                    "object, or torch.ops.namespace.name"
                )
            name = [number, name]
        args = [self.pack(_renumbered(a, numbers)) for a in node.args]
        return [name, args, [self.meta(v.meta) for v in node.outputs]]

    def whole_graph(self, graph: Graph) -> int:
        """A graph that was not made a program yet, by number."""
        return self._new_graph(graph)

    def tables(self) -> dict[str, Any]:
        """What the data refers to; the bytes of constants are apart."""
        return {
            "metas": self.metas,
            "graphs": self.graphs,
            "origins": self.origins,
            "lines": [[path, *file_facts(path)] for path in sorted({o[0] for o in self.origins})],
            "constants": [meta for meta, _ in self.constants],
        }

    def constant(self, t: Any) -> int:
        """The bytes from the first element to the last."""
        meta: TensorMeta = t._meta
        size = meta.dtype.itemsize
        start = t._offset * size
        self.constants.append(
            (self.meta(meta), t._storage.host()[start : start + meta.span * size].tobytes())
        )
        if sum(len(raw) for _, raw in self.constants) > _MOST_CONSTANT_BYTES:
            raise UnstorableError("its constants are too large")
        return len(self.constants) - 1


def _renumbered(a: Any, numbers: dict[int, int]) -> Any:
    if type(a) is Value:
        return Value(numbers[a.index], a.meta)
    if type(a) is tuple:
        return tuple(_renumbered(x, numbers) for x in a)
    return a


class Reader:
    """Makes programs of what a `ProgramWriter` wrote."""

    def __init__(self, data: Any, raw: list[bytes], world: CacheKey, backend: Any) -> None:
        self.world, self.backend = world, backend
        self.metas = [self._meta(*m) for m in data["metas"]]
        known = {path for path, *facts in data["lines"] if facts == file_facts(path)}
        self._origins = [Origin(*o) if o[0] in known else None for o in data["origins"]]
        self._constants = [
            self._constant(m, r) for m, r in zip(data["constants"], raw, strict=True)
        ]
        self._graphs: list[Graph] = []
        for graph in data["graphs"]:  # those inside of others come before them
            self._graphs.append(self._graph(*graph))

    def _meta(
        self, dtype: str, shape: list[int], strides: list[int], place: str, flipped: bool
    ) -> TensorMeta:
        return make_meta(_DTYPES[dtype], tuple(shape), tuple(strides), device(place), flipped)

    def meta(self, x: Any) -> Any:
        if type(x) is int:
            return self.metas[x]
        if type(x) is list:
            return self.unpack(x[1])
        if x is None or x in _KINDS:
            return None if x is None else _KINDS[x]
        return NumberMeta(_KINDS[x.removeprefix("any ")])

    def unpack(self, x: Any, values: list[Value] | None = None) -> Any:
        if type(x) is not list:
            return x
        word, *rest = x
        if word == "v" and values is not None:
            return values[rest[0]]
        if word == "t":
            return tuple([self.unpack(v, values) for v in rest])
        if word == "l":
            return [self.unpack(v, values) for v in rest]
        return _WORDS[word](self, *rest)

    def program(self, data: Any) -> Program:
        made = Program(
            tuple(self.metas[k] for k in data["arguments"]),
            tuple(self.metas[k] for k in data["results"]),
            tuple(self._constants[k] for k in data["constants"]),
            data["numbers"],
            data["arena"],
            written=frozenset(data["written"]),
        )
        made.steps = [self._step(*s) for s in data["steps"]]
        return made

    def sub_program(self, graph: int, data: Any) -> SubProgram:
        """What a node of control flow runs."""
        made = self.program(data)
        return SubProgram(self._graphs[graph], made, make_runner(made, self.backend))

    def _step(self, graph: int, inputs: Any, outputs: Any, origins: Any) -> Step:
        lines = [self._origins[k] for k in origins]
        return Step(
            self._graphs[graph],
            tuple([self._item(x) for x in inputs]),
            tuple([self._place(*p) for p in outputs]),
            tuple([o for o in lines if o is not None]),
        )

    def _item(self, x: Any) -> Any:
        if type(x) is list:
            if x[0] == "p":
                return self._place(*x[1:])
            if x[0] == "n":
                return NumberArgument(x[1])
        return self.unpack(x)

    def _place(self, kind: str, index: int, offset: int, meta: int) -> Place:
        return Place(kind, index, offset, self.metas[meta])

    def _graph(self, inputs: Any, nodes: Any, outputs: Any) -> Graph:
        graph, table = Graph(), op_.table()
        values = [graph.input(self.meta(m)) for m in inputs]
        for name, args, metas in nodes:
            given = tuple([self.unpack(a, values) for a in args])
            op = self._custom(*name) if type(name) is list else table[name]
            values += graph.call(op, given, [self.meta(m) for m in metas])
        graph.outputs = tuple([values[k] for k in outputs])
        return graph

    def whole_graph(self, number: int) -> Graph:
        return self._graphs[number]

    def constant(self, number: int) -> Any:
        return self._constants[number]

    def _custom(self, number: int, name: str) -> Any:
        """The op that somebody defined under this name, in this process."""
        op = op_.custom_ops().get(name)
        if op is None or getattr(op.host, "owner", None) is not self.world.things[number]:
            raise StaleError(f"the custom op {name} is another one")
        return op

    def _constant(self, meta: int, raw: bytes) -> Any:
        made = new_tensor(self.metas[meta])
        size = made._meta.span * made._meta.dtype.itemsize
        if len(raw) != size:
            raise StaleError(f"a constant of {len(raw)} bytes where {size} are expected")
        made._storage.write(0, np.frombuffer(raw, np.uint8))
        return made


def _generator(reader: Reader, number: int) -> Any:
    found = default_generator if number < 0 else reader.world.things[number]
    if not isinstance(found, Generator):
        raise StaleError("a generator is something else")
    return found


_WORDS: dict[str, Any] = {
    "z": lambda r, *v: Size([r.unpack(x) for x in v]),
    "nan": lambda r, bits: _BITS.unpack(bytes.fromhex(bits))[0],
    "c": lambda r, a, b: complex(r.unpack(a), r.unpack(b)),
    "s": lambda r, *v: slice(*[r.unpack(x) for x in v]),
    "d": lambda r, name: _DTYPES[name],
    "D": lambda r, kind, index: device(kind, index),
    "f": lambda r, name: _FORMATS[name],
    "e": lambda r: ...,
    "b": lambda r, text: bytes.fromhex(text),
    "g": _generator,
    "program": lambda r, number, data: r.sub_program(number, data),
}


def file_facts(path: str) -> list[int]:
    """What tells whether line numbers of a file still mean the same."""
    try:
        found = os.stat(path)
    except OSError:
        return []
    return [found.st_size, found.st_mtime_ns]
