"""Gradients of several processes made one: in buckets, while the backward pass goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lucerne._src.distributed.processes.collectives import all_reduce
from lucerne._src.distributed.processes.group import ProcessGroup
from lucerne._src.distributed.processes.work import Work
from lucerne._src.futures import Future
from lucerne._src.tensor import api as lu

FIRST_BUCKET = 1 << 20
"""Bytes of the first bucket, which is ready first: a small one starts the talk early."""
MEGABYTE = 1 << 20


class GradBucket:
    """Gradients that go to the other ranks together, as a hook of `register_comm_hook` sees it."""

    def __init__(self, index: int, numbers: list[int], parameters: list[Any]) -> None:
        self._index, self.numbers, self._parameters = index, numbers, parameters
        self.last = False
        total = sum(p.numel() for p in parameters)
        self._buffer = lu.zeros(total, dtype=parameters[0].dtype)
        self.views = _views(self._buffer, parameters)
        self.waiting = len(parameters)
        self.work: Work | Future[Any] | None = None

    def index(self) -> int:
        return self._index

    def buffer(self) -> Any:
        """All gradients of the bucket, flat."""
        return self._buffer

    def set_buffer(self, buffer: Any) -> None:
        self._buffer = buffer
        self.views = _views(buffer, self._parameters)

    def gradients(self) -> list[Any]:
        return list(self.views)

    def parameters(self) -> list[Any]:
        return list(self._parameters)

    def is_last(self) -> bool:
        """Whether it is the last one of a backward pass."""
        return self.last


def _views(buffer: Any, parameters: Sequence[Any]) -> list[Any]:
    parts = buffer.split([p.numel() for p in parameters])
    return [part.view(p.shape) for part, p in zip(parts, parameters, strict=True)]


def cut(parameters: Sequence[Any], most: int) -> list[list[int]]:
    """Numbers of parameters, bucket by bucket: the last ones first, as gradients come; one dtype in
    a bucket.

    >>> import lucerne as torch
    >>> cut([torch.zeros(1 << 19), torch.zeros(1 << 18), torch.zeros(4)], 1 << 22)
    [[2, 1], [0]]
    """
    found: list[list[int]] = []
    open_buckets: dict[Any, tuple[list[int], int]] = {}
    for number in reversed(range(len(parameters))):
        p = parameters[number]
        bucket, size = open_buckets.get(p.dtype, ([], 0))
        if not bucket:
            found.append(bucket)
        bucket.append(number)
        size += p.numel() * p.element_size()
        limit = min(most, FIRST_BUCKET) if bucket is found[0] else most
        open_buckets[p.dtype] = ([], 0) if size >= limit else (bucket, size)
    return found


class Reducer:
    """Watches the gradients of parameters; when all are there, each is the mean over ranks."""

    def __init__(
        self,
        names: Sequence[str],
        parameters: Sequence[Any],
        group: ProcessGroup,
        most: int,
        as_views: bool,
        find_unused: bool,
        static: bool,
    ) -> None:
        self.names, self.parameters = list(names), list(parameters)
        self.group, self.as_views = group, as_views
        self.find_unused, self.static = find_unused or static, static
        self.hook: Callable[[Any, GradBucket], Future[Any]] | None = None
        self.hook_state: Any = None
        self.buckets = [
            GradBucket(k, row, [self.parameters[n] for n in row])
            for k, row in enumerate(cut(self.parameters, most))
        ]
        self.buckets[-1].last = True
        self._place = {
            n: (bucket, k) for bucket in self.buckets for k, n in enumerate(bucket.numbers)
        }
        self._active = False
        self._done: set[int] = set()
        self._unused: list[int] = []
        self._known_unused: list[int] | None = None
        self._used_work: Work | None = None
        self._next = 0
        self._used = lu.zeros(len(self.parameters), dtype=lu.int32)
        self.handles = [
            p.register_post_accumulate_grad_hook(self._watch(n))
            for n, p in enumerate(self.parameters)
        ]

    def _watch(self, number: int) -> Callable[[Any], None]:
        def came(parameter: Any) -> None:
            if self._active and number not in self._done:
                self._ready(number, parameter.grad)

        return came

    # -- one pass --------------------------------------------------------------------------------

    def check_finished(self) -> None:
        """Raise if the pass before did not give all gradients."""
        if not self._active:
            return
        missing = [self.names[n] for n in range(len(self.names)) if n not in self._done]
        if not self._done or not missing:
            self._active = False  # no backward pass came after that forward pass
            return
        raise RuntimeError(
            "Expected to have finished reduction in the prior iteration before starting a new one. "
            "Parameters without a gradient in that backward pass: "
            f"{', '.join(missing[:20])}. Give find_unused_parameters=True if some are not used in "
            "each pass, and see that all results of forward take part in the loss"
        )

    def prepare(self, outputs: Any) -> None:
        """A forward pass was made: gradients may come."""
        self._active, self._next, self._done = True, 0, set()
        self._unused, self._used_work = [], None
        for bucket in self.buckets:
            bucket.waiting, bucket.work = len(bucket.numbers), None
        if not self.find_unused:
            return
        if self._known_unused is None or not self.static:
            used = reached(outputs)
            ids = enumerate(self.parameters)
            self._known_unused = [n for n, p in ids if id(p) not in used]
        self._unused = list(self._known_unused)
        if len(self._unused) == len(self.parameters):
            self._begin()  # nobody's gradient will come to say so

    def _begin(self) -> None:
        """The first gradient of a pass is there: parameters that get none are ready too."""
        if not self.find_unused or self._used_work is not None:
            return
        self._used.fill_(1)
        for n in self._unused:
            self._used[n] = 0
        self._used_work = all_reduce(self._used, group=self.group, async_op=True)
        for n in self._unused:
            self._ready(n, None)

    def _ready(self, number: int, grad: Any) -> None:
        self._begin()
        if number in self._done:
            return
        self._done.add(number)
        bucket, k = self._place[number]
        with lu.no_grad():
            if grad is None:
                bucket.views[k].zero_()
            elif grad.data_ptr() != bucket.views[k].data_ptr():
                bucket.views[k].copy_(grad)
        bucket.waiting -= 1
        while self._next < len(self.buckets) and not self.buckets[self._next].waiting:
            self._launch(self.buckets[self._next])
            self._next += 1
        if self._next == len(self.buckets):
            self._finish()

    def _launch(self, bucket: GradBucket) -> None:
        """In one order on all ranks, whatever the order of gradients is."""
        if self.hook is not None:
            bucket.work = self.hook(self.hook_state, bucket)
            return
        with lu.no_grad():
            bucket.buffer().div_(self.group.size())
        bucket.work = all_reduce(bucket.buffer(), group=self.group, async_op=True)

    def _finish(self) -> None:
        used = None
        if self._used_work is not None:
            self._used_work.wait()
            used = self._used.tolist()
        for bucket in self.buckets:
            work = bucket.work
            assert work is not None
            work.wait()
            if isinstance(work, Future):
                value = work.value()
                value = value[0] if isinstance(value, list | tuple) else value
                if value is not bucket.buffer():
                    with lu.no_grad():
                        bucket.buffer().copy_(value)
            for n, view in zip(bucket.numbers, bucket.views, strict=True):
                if used is None or used[n]:
                    self._give(self.parameters[n], view)
        self._active = False

    def _give(self, parameter: Any, view: Any) -> None:
        with lu.no_grad():
            if self.as_views:
                parameter.grad = view
            elif parameter.grad is None:
                parameter.grad = view.clone()
            else:
                parameter.grad.copy_(view)


def reached(outputs: Any) -> set[int]:
    """Ids of the leaves whose gradients a backward pass from `outputs` computes."""
    found: set[int] = set()
    left: list[Any] = []
    _add_outputs(outputs, left, found)
    seen: set[int] = set()
    while left:
        node = left.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        leaf = getattr(node, "variable", None)
        if leaf is not None:
            found.add(id(leaf))
        left.extend(pair[0] for pair in node.next_functions)
    return found


def _add_outputs(value: Any, left: list[Any], found: set[int]) -> None:
    if isinstance(value, lu.Tensor):
        if value.grad_fn is not None:
            left.append(value.grad_fn)
        else:
            found.add(id(value))
    elif isinstance(value, dict):
        for inner in value.values():
            _add_outputs(inner, left, found)
    elif isinstance(value, list | tuple):
        for inner in value:
            _add_outputs(inner, left, found)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            _add_outputs(getattr(value, name), left, found)
