"""Minimum cut of a flow network, by Dinic's algorithm.

net = Network()
a, b = net.vertex(), net.vertex()
net.edge(SOURCE, a, 3)
net.edge(a, b, 2)
net.edge(b, SINK, 5)
net.solve()                     # 2
net.sink_side()                 # {SINK, b}
"""

from __future__ import annotations

SOURCE, SINK = 0, 1
ENDLESS = 1 << 60
"""The capacity of an edge that must not be cut."""


class Network:
    """Vertices are numbers, edges have a capacity; 0 is the source and 1 the sink.

    >>> from lucerne._src.transforms.flow import SINK, SOURCE, Network
    >>> net = Network()
    >>> a, b = net.vertex(), net.vertex()
    >>> net.edge(SOURCE, a, 3), net.edge(a, b, 2), net.edge(b, SINK, 5)
    (None, None, None)
    >>> net.solve(), net.sink_side() == {SINK, b}
    (2, True)
    """

    def __init__(self) -> None:
        self._edges: list[list[int]] = [[], []]
        """For each vertex the numbers of its edges; edge `e` goes back as edge `e ^ 1`."""
        self._to: list[int] = []
        self._room: list[int] = []

    def vertex(self) -> int:
        self._edges.append([])
        return len(self._edges) - 1

    def edge(self, a: int, b: int, capacity: int) -> None:
        self._edges[a].append(len(self._to))
        self._edges[b].append(len(self._to) + 1)
        self._to += (b, a)
        self._room += (capacity, 0)

    def solve(self) -> int:
        """The size of the cut (at least `ENDLESS`: there is none)."""
        total = 0
        while True:
            level = self._levels()
            if level[SINK] < 0:
                return total
            at = [0] * len(self._edges)
            while found := self._push(level, at):
                total += found

    def sink_side(self) -> set[int]:
        """After `solve`: the vertices from which the sink can still be reached.

        Of all minimum cuts this is the one nearest to the sink.
        """
        seen, todo = {SINK}, [SINK]
        while todo:
            for e in self._edges[todo.pop()]:
                before = self._to[e]
                if self._room[e ^ 1] > 0 and before not in seen:
                    seen.add(before)
                    todo.append(before)
        return seen

    def _levels(self) -> list[int]:
        """How many edges away from the source each vertex is; -1: out of reach."""
        level = [-1] * len(self._edges)
        level[SOURCE] = 0
        todo = [SOURCE]
        for here in todo:  # grows while it is walked
            for e in self._edges[here]:
                there = self._to[e]
                if self._room[e] > 0 and level[there] < 0:
                    level[there] = level[here] + 1
                    todo.append(there)
            if level[SINK] >= 0:
                break
        return level

    def _push(self, level: list[int], at: list[int]) -> int:
        """Send what one more path carries; `at` remembers which edges lead nowhere."""
        edges, to, room = self._edges, self._to, self._room
        path: list[int] = []
        here = SOURCE
        while here != SINK:
            mine = edges[here]
            k = at[here]
            while k < len(mine):
                e = mine[k]
                if room[e] > 0 and level[to[e]] == level[here] + 1:
                    break
                k += 1
            at[here] = k
            if k < len(mine):
                path.append(e)
                here = to[e]
            elif path:
                here = to[path.pop() ^ 1]
                at[here] += 1
            else:
                return 0
        amount = min(room[e] for e in path)
        for e in path:
            room[e] -= amount
            room[e ^ 1] += amount
        return amount
