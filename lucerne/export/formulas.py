"""Templates (what depends on sizes) as JSON and back: formulas are text that is parsed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from lucerne._src.io.errors import CorruptFileError
from lucerne._src.ir.graph import Graph, Node
from lucerne._src.ir.symbolic.expressions import FORMULAS, RELATIONS, Guard, parse_formula
from lucerne._src.transforms.generalize import GraphOf, Template

_LONGEST = 2000
_LARGEST = 2**48
_BY_SIGN = {sign: relation for relation, sign in RELATIONS.items()}


def number(x: Any) -> Any:
    """A number that may depend on sizes."""
    if isinstance(x, GraphOf):
        return to_json(x.template)
    if type(x) is float:
        return {"float": x.hex()}
    return repr(x) if isinstance(x, FORMULAS) else x


def read_number(told: Any, names: set[str]) -> Any:
    if type(told) is int and abs(told) <= _LARGEST:
        return told
    if type(told) is str:
        return expression(told, names)
    if type(told) is dict and [*told] == ["float"] and type(told["float"]) is str:
        return float.fromhex(told["float"])
    raise CorruptFileError(f"a size is damaged: {str(told)[:40]!r}")


def expression(text: Any, names: set[str]) -> Any:
    """A formula of known symbols; products of bounded length, so that none grows without end."""
    if type(text) is not str or len(text) > _LONGEST:
        raise CorruptFileError("the formula of a size is damaged")
    try:
        tree = ast.parse(text, mode="eval")
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and not _is_small(node.value):
                raise ValueError(text)
        if sum(isinstance(n, ast.BinOp | ast.Call) for n in ast.walk(tree)) > 64:
            raise ValueError("too long")
        found = parse_formula(text)
        if not isinstance(found, FORMULAS):
            raise ValueError(text)
    except (ValueError, SyntaxError, TypeError, RecursionError, ArithmeticError, MemoryError) as e:
        raise CorruptFileError(f"the formula {text[:40]!r} is damaged") from e
    if not found.symbols() <= names:
        raise CorruptFileError(f"the formula {text[:40]!r} speaks of unknown sizes")
    return found


def _is_small(value: Any) -> bool:
    if type(value) is int:
        return abs(value) <= _LARGEST
    return type(value) is float or value in ("inf", "-inf", "nan")


# ---- templates ----------------------------------------------------------------------------------


def to_json(template: Template) -> dict[str, Any]:
    return {
        "symbols": {name: list(place) for name, place in template.symbols.items()},
        "inputs": [
            None if f is None else [[number(n) for n in part] for part in f]
            for f in template.inputs
        ],
        "nodes": {
            str(k): [[path, number(x)] for path, x in _formulas(args, [])]
            for k, args in template.formulas.items()
        },
        "guards": [
            [number(g.left), RELATIONS[g.relation], number(g.right), g.result]
            for g in template.guards
        ],
    }


def _formulas(x: Any, path: list[int]) -> Iterator[tuple[list[int], Any]]:
    if isinstance(x, (*FORMULAS, GraphOf)):
        yield path, x
    elif isinstance(x, (tuple, list)):
        for k, y in enumerate(x):
            yield from _formulas(y, [*path, k])


def from_json(told: Any, graph: Graph, around: frozenset[str] = frozenset()) -> Template:
    """`around`: the sizes that are known where a graph inside a node stands."""
    symbols = {str(n): (int(i), int(d)) for n, (i, d) in told["symbols"].items()}
    for name, (i, d) in symbols.items():
        inside = 0 <= i < len(graph.inputs) and 0 <= d < graph.inputs[i].meta.ndim
        if not inside or not name.isidentifier():
            raise CorruptFileError(f"the size {name[:40]!r} is read at no dimension of an input")
    made = Template(graph, symbols)
    made.results = None
    names = set(symbols) | around
    for row in told["inputs"]:
        formula = row and tuple(tuple(read_number(n, names) for n in part) for part in row)
        made.inputs.append(formula or None)
    if len(made.inputs) != len(graph.inputs):
        raise CorruptFileError("the sizes of the inputs are damaged")
    for formula, v in zip(made.inputs, graph.inputs, strict=True):
        if formula is not None and [len(x) for x in formula] != [v.meta.ndim] * 2:
            raise CorruptFileError("the sizes of an input are damaged")
    for k, rows in told["nodes"].items():
        args: Any = _node(graph, k).args
        for path, x in rows:
            args = _placed(args, list(path), x, names)
        made.formulas[int(k)] = args
    made.guards = tuple(
        Guard(read_number(a, names), _BY_SIGN[sign], read_number(b, names), bool(result))
        for a, sign, b, result in told["guards"]
    )
    return made


def _node(graph: Graph, k: str) -> Node:
    if not 0 <= int(k) < len(graph.nodes):
        raise CorruptFileError("a formula belongs to no node")
    return graph.nodes[int(k)]


def _placed(x: Any, path: list[int], told: Any, names: set[str]) -> Any:
    """`x` with one number (or graph) inside replaced by a formula."""
    if not path:
        if isinstance(x, Graph) and type(told) is dict:
            return GraphOf(from_json(told, x, frozenset(names)))
        if type(x) not in (int, float):
            raise CorruptFileError("a formula stands where there is no number")
        return read_number(told, names)
    if type(x) not in (tuple, list):
        raise CorruptFileError("a formula stands where there is nothing")
    parts = list(x)
    parts[path[0]] = _placed(parts[path[0]], path[1:], told, names)
    return type(x)(parts)
