"""FxGraphDrawer: torch's name for drawing a module. See `lucerne.fx.draw`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lucerne._src.base.refusals import only
from lucerne.fx.drawing import page, svg


class Drawing:
    """A drawn graph: `create_svg()` is its text, `write_html(path)` a page to open."""

    def __init__(self, graph: Any, title: str) -> None:
        self.graph, self.title = graph, title

    def create_svg(self) -> bytes:
        return svg(self.graph).encode()

    def write_svg(self, path: str | Path) -> None:
        Path(path).write_bytes(self.create_svg())

    def write_html(self, path: str | Path) -> None:
        Path(path).write_text(page(self.graph, self.title))


class FxGraphDrawer:
    """Drawings of a module's graph and of the graphs of its submodules. No graphviz is needed.

    >>> import lucerne as torch
    >>> from lucerne.fx.passes.graph_drawer import FxGraphDrawer
    >>> traced = torch.fx.symbolic_trace(lambda x: torch.relu(x))
    >>> FxGraphDrawer(traced, "relu").get_dot_graph().create_svg()[:4]
    b'<svg'
    """

    def __init__(self, graph_module: Any, name: str, **options: Any) -> None:
        for option, value in options.items():
            only("FxGraphDrawer", option, value, None, "drawings have one form")
        self._name = name
        self._drawings = {name: Drawing(graph_module, name)}
        for path, child in graph_module.named_modules():
            if path and hasattr(child, "graph"):
                self._drawings[f"{name}_{path}"] = Drawing(child, f"{name}_{path}")

    def get_dot_graph(self, submod_name: str | None = None) -> Drawing:
        return self._drawings[self._name if submod_name is None else f"{self._name}_{submod_name}"]

    get_main_dot_graph = get_dot_graph

    def get_submod_dot_graph(self, submod_name: str) -> Drawing:
        return self.get_dot_graph(submod_name)

    def get_all_dot_graphs(self) -> dict[str, Drawing]:
        return self._drawings
