"""Counts, in the text that Prometheus reads."""

from __future__ import annotations

from bisect import bisect_left

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
Key = tuple[tuple[str, str], ...]


class Histogram:
    """How many numbers lay below each bound."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds, self.counts, self.total = bounds, [0] * (len(bounds) + 1), 0.0

    def add(self, x: float) -> None:
        """One more number."""
        self.counts[bisect_left(self.bounds, x)] += 1
        self.total += x

    def lines(self, name: str, key: Key) -> list[str]:
        """As text."""
        made, below = [], 0
        for bound, count in zip((*self.bounds, "+Inf"), self.counts, strict=True):
            below += count
            made.append(f"{name}_bucket{_labels((*key, ('le', str(bound))))} {below}")
        return [
            *made,
            f"{name}_sum{_labels(key)} {self.total:.9g}",
            f"{name}_count{_labels(key)} {below}",
        ]


class Metrics:
    """Everything that the server counts. Names of models are those of the folder: few.

    >>> from lucerne._src.serve.metrics import Metrics
    >>> metrics = Metrics()
    >>> metrics.answered("net", 200, 0.002)
    >>> print(metrics.text().splitlines()[2])
    lucerne_requests_total{model="net",code="200"} 1
    """

    def __init__(self) -> None:
        self._requests: dict[Key, int] = {}
        self._waiting: dict[Key, int] = {}
        self._seconds: dict[Key, Histogram] = {}
        self._program: dict[Key, Histogram] = {}
        self._rows: dict[Key, Histogram] = {}
        self._together: dict[Key, int] = {}
        self._tokens: dict[Key, int] = {}

    def answered(self, model: str, code: int, seconds: float) -> None:
        """A request was answered (code 0: its client was gone)."""
        key = (("model", model), ("code", str(code)))
        self._requests[key] = self._requests.get(key, 0) + 1
        self._seconds.setdefault((("model", model),), Histogram(_SECONDS)).add(seconds)

    def ran(self, model: str, requests: int, rows: int, seconds: float) -> None:
        """A program was called for so many requests at once."""
        key = (("model", model),)
        self._together[key] = self._together.get(key, 0) + requests
        self._rows.setdefault(key, Histogram(_ROWS)).add(rows)
        self._program.setdefault(key, Histogram(_SECONDS)).add(seconds)

    def wrote(self, model: str, tokens: int, seconds: float, waiting: int) -> None:
        """A language model took a step, which gave so many tokens."""
        key = (("model", model),)
        self._tokens[key] = self._tokens.get(key, 0) + tokens
        self._program.setdefault(key, Histogram(_SECONDS)).add(seconds)
        self.waiting(model, waiting)

    def waiting(self, model: str, count: int) -> None:
        """So many requests are in a queue now."""
        self._waiting[(("model", model),)] = count

    def text(self) -> str:
        """All of it."""
        made: list[str] = []
        for name, kind, says, values in (
            ("lucerne_requests_total", "counter", "requests by status", self._requests),
            ("lucerne_batched_requests_total", "counter", "requests in calls", self._together),
            ("lucerne_tokens_total", "counter", "tokens written", self._tokens),
            ("lucerne_waiting_requests", "gauge", "requests in the queue", self._waiting),
        ):
            made += [f"# HELP {name} {says}", f"# TYPE {name} {kind}"]
            made += [f"{name}{_labels(key)} {value}" for key, value in values.items()]
        for name, says, held in (
            ("lucerne_request_seconds", "from request to answer", self._seconds),
            ("lucerne_program_seconds", "calls of programs", self._program),
            ("lucerne_batch_rows", "rows of a call", self._rows),
        ):
            made += [f"# HELP {name} {says}", f"# TYPE {name} histogram"]
            made += [line for key, each in held.items() for line in each.lines(name, key)]
        return "\n".join(made) + "\n"


def _labels(key: Key) -> str:
    escaped = [(k, v.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")) for k, v in key]
    return "{" + ",".join(f'{k}="{v}"' for k, v in escaped) + "}"
