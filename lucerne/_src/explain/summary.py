"""`summary`: a model at a glance: layers, what they give, parameters, operations, bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lucerne._src.explain.memory import size
from lucerne._src.explain.sheet import Sheet, call_of
from lucerne._src.tensor import api as lu
from lucerne.nn.modules.module import Module
from lucerne.utils.flop_counter import GLOBAL, FlopCounterMode

_NONE = "-"


@dataclass
class Layer:
    """One module of a model, as one call ran it."""

    path: str
    kind: str
    depth: int
    shapes: list[tuple[int, ...]]
    """Of the tensors it gave, in its last call."""
    calls: int
    parameters: int
    """Its own and those of the layers in it, each once."""
    flops: int
    nbytes: int
    """Of its own parameters and buffers, and of what it gave."""

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.rpartition(".")[2] or "(model)"


class Summary(Sheet):
    """The layers of a model, the model itself first.

    >>> import lucerne as torch
    >>> found = torch.summary(torch.nn.Linear(3, 4), torch.ones(2, 3))
    >>> found.parameters, found.flops
    (16, 48)
    """

    heads = ("layer", "kind", "output", "parameters", "FLOP", "bytes")
    legend = "bytes: of a layer's own parameters and buffers, and of what it gives"

    def __init__(self, layers: list[Layer], flops: int, trained: int, nbytes: int) -> None:
        self.layers, self.flops = layers, flops
        self.parameters, self.trained = layers[0].parameters, trained
        self.nbytes = nbytes
        """Of all parameters and buffers."""

    def title(self) -> str:
        return f"{self.layers[0].kind}: summary"

    def rows(self) -> list[tuple[str, ...]]:
        """The table's cells, as text. Layers that are like the one before, all the way inside, have
        one row together."""
        return _folded(self.layers)

    def totals(self) -> str:
        """One line."""
        kept = self.parameters - self.trained
        frozen = f" ({kept:,} of them frozen)" if kept else ""
        return (
            f"{self.parameters:,} parameters{frozen}, {size(self.nbytes)} with buffers; "
            f"{_flops(self.flops)} in one forward pass"
        )


def _folded(layers: list[Layer]) -> list[tuple[str, ...]]:
    """Rows of some layers of one depth, each followed by those in it."""
    rows, at = [], 0
    while at < len(layers):
        layer, end = layers[at], _end(layers, at)
        inside = _alike(layers[at:end])
        rows += [_row(layer, layer.name, layer.kind), *_folded(layers[at + 1 : end])]
        same, after = [], end
        while after < len(layers) and _alike(layers[after : _end(layers, after)]) == inside:
            same.append(layers[after])
            after = _end(layers, after)
        at = end
        if len(same) * len(inside) > 1:
            names = dict.fromkeys((same[0].name, same[-1].name))
            kind = f"{layer.kind}, like {layer.name}" + (", each" if len(same) > 1 else "")
            rows.append(_row(layer, " to ".join(names), kind))
            at = after
    return rows


def _end(layers: list[Layer], at: int) -> int:
    """Where the layers in the one at `at` end."""
    depth = layers[at].depth
    return next((k for k in range(at + 1, len(layers)) if layers[k].depth <= depth), len(layers))


def _alike(branch: list[Layer]) -> list[tuple[Any, ...]]:
    """What must be equal for a layer and all in it to be shown with another one."""
    inner = ["", *(layer.name for layer in branch[1:])]
    facts = ((x.depth, x.kind, x.shapes, x.calls, x.parameters, x.flops, x.nbytes) for x in branch)
    return [(name, *fact) for name, fact in zip(inner, facts, strict=True)]


def _row(layer: Layer, name: str, kind: str) -> tuple[str, ...]:
    return (
        "  " * layer.depth + name,
        kind if layer.calls < 2 else f"{kind} ({layer.calls} calls)",
        " ".join(str(list(shape)) for shape in layer.shapes) or _NONE,
        _count(layer.parameters),
        _flops(layer.flops),
        size(layer.nbytes) if layer.nbytes else _NONE,
    )


def _count(number: int) -> str:
    return f"{number:,}" if number else _NONE


def _flops(number: int) -> str:
    """With its unit: large numbers can't be compared by their digits."""
    for unit, scale in (("TFLOP", 1e12), ("GFLOP", 1e9), ("MFLOP", 1e6), ("KFLOP", 1e3)):
        if number >= scale:
            return f"{number / scale:.1f} {unit}"
    return f"{number} FLOP" if number else _NONE


def summary(model: Module, batch: Any = (), **named: Any) -> Summary:
    """What a model consists of and what one call of it does, as a table (printed, or in a notebook
    or on a page: `html()`, `save(path)`).

    `batch`: the model's argument, or a tuple of them, or a dict of named ones; `named`: more of
    those. The model is called once, without gradients and as in `eval()`: it stays as it was.

    >>> import lucerne as torch
    >>> print(torch.summary(torch.nn.Linear(3, 4), torch.ones(2, 3)))
    layer    kind    output  parameters     FLOP  bytes
    ---------------------------------------------------
    (model)  Linear  [2, 4]          16  48 FLOP   96 B
    ---------------------------------------------------
    bytes: of a layer's own parameters and buffers, and of what it gives
    16 parameters, 64 B with buffers; 48 FLOP in one forward pass
    """
    args, named = call_of(batch, named)
    given: dict[int, list[Any]] = {}
    calls: dict[int, int] = {}

    def note(module: Any, _: Any, output: Any) -> None:
        given[id(module)] = list(_tensors(output))
        calls[id(module)] = calls.get(id(module), 0) + 1

    modes = [(m, m.training) for m in model.modules()]
    handles = [m.register_forward_hook(note) for m in model.modules()]
    counter = FlopCounterMode(display=False)
    try:
        model.eval()
        with lu.no_grad(), counter:
            model(*args, **named)
    finally:
        for handle in handles:
            handle.remove()
        for module, training in modes:
            module.training = training
    flops = _by_path(model, counter)
    layers = [
        _layer(path, m, given.get(id(m), []), calls.get(id(m), 0), flops.get(path, 0))
        for path, m in model.named_modules()
    ]
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    held = sum(_nbytes(t) for t in (*model.parameters(), *model.buffers()))
    return Summary(layers, counter.get_total_flops(), trained, held)


def _layer(path: str, module: Module, outputs: list[Any], calls: int, flops: int) -> Layer:
    own = (*module.parameters(recurse=False), *module.buffers(recurse=False), *outputs)
    return Layer(
        path,
        type(module).__name__,
        path.count(".") + 1 if path else 0,
        [tuple(t.shape) for t in outputs],
        calls,
        sum(p.numel() for p in module.parameters()),
        flops,
        sum(map(_nbytes, own)),
    )


def _by_path(model: Module, counter: FlopCounterMode) -> dict[str, int]:
    """The counter's numbers, by paths: it begins them with the class of the model."""
    start = type(model).__name__
    return {
        name.removeprefix(start).removeprefix("."): sum(found.values())
        for name, found in counter.get_flop_counts().items()
        if name != GLOBAL
    }


def _nbytes(t: Any) -> int:
    return int(t.numel() * t.element_size())


def _tensors(found: Any) -> list[Any]:
    """The tensors in a result, as far as lists, tuples and dicts go."""
    if isinstance(found, lu.Tensor):
        return [found]
    if isinstance(found, dict):
        found = list(found.values())
    return [t for x in found for t in _tensors(x)] if isinstance(found, (list, tuple)) else []
