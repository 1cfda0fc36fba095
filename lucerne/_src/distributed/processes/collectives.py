"""The collectives, in torch's spelling."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lucerne._src.distributed.meeting.errors import DistBackendError
from lucerne._src.distributed.meeting.stores import seconds_of
from lucerne._src.distributed.processes import reduction, values
from lucerne._src.distributed.processes.algorithms import Algorithms
from lucerne._src.distributed.processes.frames import Call, caller
from lucerne._src.distributed.processes.group import ProcessGroup
from lucerne._src.distributed.processes.groups import member, number_in
from lucerne._src.distributed.processes.reduction import ReduceOp
from lucerne._src.distributed.processes.values import Flat, check_tensor, describe
from lucerne._src.distributed.processes.work import Work

SUM = ReduceOp.SUM
GRACE = 5.0


def _start(
    pg: ProcessGroup,
    signature: str,
    body: Callable[[Algorithms], None],
    async_op: bool,
    result: Any = None,
) -> Work | None:
    return pg.run(Call(signature, caller()), body, async_op, result)


def _op(op: Any, tensor: Any) -> tuple[ReduceOp, str]:
    made = op if isinstance(op, ReduceOp) else ReduceOp(op)
    kind = values.kind_of(tensor.dtype)
    reduction.check(made, kind)
    return made, kind


def _check_list(name: str, tensors: Any, count: int) -> None:
    if not isinstance(tensors, list | tuple):
        raise TypeError(f"{name} must be a list of tensors, got {type(tensors).__name__}")
    if len(tensors) != count:
        raise ValueError(f"{name} has {len(tensors)} tensors, and the group {count} ranks")
    for tensor in tensors:
        check_tensor(name, tensor)


def _check_alike(name: str, tensors: Sequence[Any], like: Any) -> None:
    for tensor in tensors:
        if tensor.dtype != like.dtype or tensor.numel() != like.numel():
            raise ValueError(
                f"{name}: tensors must have one dtype and size, got {describe(tensor)} and "
                f"{describe(like)}"
            )


def all_reduce(tensor: Any, op: Any = SUM, group: Any = None, async_op: bool = False) -> Any:
    """Reduce the tensors of all ranks, in place; all ranks get the same bits."""
    check_tensor("tensor", tensor)
    pg = member(group)
    if pg is None:
        return None
    made, kind = _op(op, tensor)

    def body(run: Algorithms) -> None:
        flat = Flat(tensor)
        run.all_reduce(flat.array, made, kind)
        flat.written()

    return _start(pg, f"all_reduce {describe(tensor)} {made.name}", body, async_op, tensor)


def all_reduce_coalesced(
    tensors: Sequence[Any], op: Any = SUM, group: Any = None, async_op: bool = False
) -> Any:
    """`all_reduce` of several tensors in one call."""
    tensors = list(tensors)
    for tensor in tensors:
        check_tensor("tensors", tensor)
    pg = member(group)
    if pg is None or not tensors:
        return None
    kinds = [_op(op, tensor) for tensor in tensors]

    def body(run: Algorithms) -> None:
        for tensor, (made, kind) in zip(tensors, kinds, strict=True):
            flat = Flat(tensor)
            run.all_reduce(flat.array, made, kind)
            flat.written()

    shapes = " ".join(map(describe, tensors))
    name = f"all_reduce_coalesced {kinds[0][0].name} {shapes}"
    return _start(pg, name, body, async_op, tensors)


def reduce(
    tensor: Any,
    dst: int | None = None,
    op: Any = SUM,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Any:
    """Reduce the tensors of all ranks into the one of rank `dst`."""
    check_tensor("tensor", tensor)
    pg = member(group)
    if pg is None:
        return None
    root = number_in(pg, "dst", dst, group_dst, 0)
    made, kind = _op(op, tensor)

    def body(run: Algorithms) -> None:
        flat = Flat(tensor)
        run.reduce(flat.array, root, made, kind)
        if run.me == root:
            flat.written()

    name = f"reduce {describe(tensor)} {made.name} to {root}"
    return _start(pg, name, body, async_op, tensor)


def broadcast(
    tensor: Any,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Any:
    """Give the tensor of rank `src` to all."""
    check_tensor("tensor", tensor)
    pg = member(group)
    if pg is None:
        return None
    root = number_in(pg, "src", src, group_src)

    def body(run: Algorithms) -> None:
        flat = Flat(tensor)
        run.broadcast(flat.array, root)
        if run.me != root:
            flat.written()

    return _start(pg, f"broadcast {describe(tensor)} from {root}", body, async_op, tensor)


def all_gather(
    tensor_list: Sequence[Any], tensor: Any, group: Any = None, async_op: bool = False
) -> Any:
    """Give the tensors of all ranks to all, one in each place of the list."""
    check_tensor("tensor", tensor)
    pg = member(group)
    if pg is None:
        return None
    _check_list("tensor_list", tensor_list, pg.size())
    _check_alike("all_gather", tensor_list, tensor)

    def body(run: Algorithms) -> None:
        into = [Flat(t) for t in tensor_list]
        run.all_gather(Flat(tensor).array, [flat.array for flat in into])
        for flat in into:
            flat.written()

    return _start(pg, f"all_gather {describe(tensor)}", body, async_op, tensor_list)


def all_gather_coalesced(
    output_tensor_lists: Sequence[Sequence[Any]],
    input_tensor_list: Sequence[Any],
    group: Any = None,
    async_op: bool = False,
) -> Any:
    """`all_gather` of several tensors: `output_tensor_lists[rank][k]` is tensor `k` of a rank."""
    pg = member(group)
    if pg is None:
        return None
    if len(output_tensor_lists) != pg.size():
        raise ValueError(
            f"output_tensor_lists has {len(output_tensor_lists)} lists, not one a rank"
        )
    for row in output_tensor_lists:
        for tensor, like in zip(row, input_tensor_list, strict=True):
            _check_alike("all_gather_coalesced", [tensor], like)

    def body(run: Algorithms) -> None:
        for k, tensor in enumerate(input_tensor_list):
            into = [Flat(row[k]) for row in output_tensor_lists]
            run.all_gather(Flat(tensor).array, [flat.array for flat in into])
            for flat in into:
                flat.written()

    name = "all_gather_coalesced " + " ".join(map(describe, input_tensor_list))
    return _start(pg, name, body, async_op, [t for row in output_tensor_lists for t in row])


def all_gather_into_tensor(
    output_tensor: Any, input_tensor: Any, group: Any = None, async_op: bool = False
) -> Any:
    """The tensors of all ranks behind each other (or stacked) in one."""
    check_tensor("output_tensor", output_tensor)
    check_tensor("input_tensor", input_tensor)
    pg = member(group)
    if pg is None:
        return None
    if output_tensor.numel() != input_tensor.numel() * pg.size():
        raise ValueError(
            "output tensor size must be equal to world_size times input tensor size: "
            f"{describe(output_tensor)}, {pg.size()} times {describe(input_tensor)}"
        )
    if output_tensor.dtype != input_tensor.dtype:
        raise ValueError("all_gather_into_tensor: output and input need one dtype")

    def body(run: Algorithms) -> None:
        whole = Flat(output_tensor)
        into = np.split(whole.array, pg.size())
        run.all_gather(Flat(input_tensor).array, into)
        whole.written()

    name = f"all_gather_into_tensor {describe(input_tensor)}"
    return _start(pg, name, body, async_op, output_tensor)


def _check_list_at(
    pg: ProcessGroup, root: int, place: str, what: str, tensors: Any, like: Any
) -> None:
    """One rank has a list of tensors, one for each rank; the others have none."""
    name = f"{what}_list"
    if pg.rank() == root:
        if tensors is None:
            raise ValueError(f"Argument ``{name}`` must be specified on {place} rank.")
        _check_list(name, tensors, pg.size())
        _check_alike(what, tensors, like)
    elif tensors:
        raise ValueError(f"Argument ``{name}`` must NOT be specified on non-{place} ranks.")


def gather(
    tensor: Any,
    gather_list: Sequence[Any] | None = None,
    dst: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Any:
    """Give the tensors of all ranks to rank `dst`."""
    check_tensor("tensor", tensor)
    pg = member(group)
    if pg is None:
        return None
    root = number_in(pg, "dst", dst, group_dst, 0)
    _check_list_at(pg, root, "destination", "gather", gather_list, tensor)

    def body(run: Algorithms) -> None:
        into = [Flat(t) for t in gather_list or ()]
        run.gather(Flat(tensor).array, [flat.array for flat in into] or None, root)
        for flat in into:
            flat.written()

    return _start(pg, f"gather {describe(tensor)} to {root}", body, async_op, gather_list)


def scatter(
    tensor: Any,
    scatter_list: Sequence[Any] | None = None,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Any:
    """Give each rank its tensor of the list that rank `src` has."""
    check_tensor("tensor", tensor)
    pg = member(group)
    if pg is None:
        return None
    root = number_in(pg, "src", src, group_src, 0)
    _check_list_at(pg, root, "source", "scatter", scatter_list, tensor)

    def body(run: Algorithms) -> None:
        flat = Flat(tensor)
        parts = [Flat(t).array for t in scatter_list or ()]
        run.scatter(flat.array, parts or None, root)
        flat.written()

    return _start(pg, f"scatter {describe(tensor)} from {root}", body, async_op, tensor)


def reduce_scatter(
    output: Any, input_list: Sequence[Any], op: Any = SUM, group: Any = None, async_op: bool = False
) -> Any:
    """Reduce the lists of all ranks; each rank gets the tensor of its number."""
    check_tensor("output", output)
    pg = member(group)
    if pg is None:
        return None
    _check_list("input_list", input_list, pg.size())
    _check_alike("reduce_scatter", input_list, output)
    made, kind = _op(op, output)

    def body(run: Algorithms) -> None:
        flat = Flat(output)
        run.reduce_scatter(flat.array, [Flat(t).array for t in input_list], made, kind)
        flat.written()

    name = f"reduce_scatter {describe(output)} {made.name}"
    return _start(pg, name, body, async_op, output)


def reduce_scatter_tensor(
    output: Any, input: Any, op: Any = SUM, group: Any = None, async_op: bool = False
) -> Any:
    """Reduce the tensors of all ranks; each rank gets its part of the result."""
    check_tensor("output", output)
    check_tensor("input", input)
    pg = member(group)
    if pg is None:
        return None
    made, kind = _op(op, output)
    if input.dtype != output.dtype or input.numel() != output.numel() * pg.size():
        raise ValueError(
            "input tensor must be the same type and world_size times the size of the output: "
            f"{describe(input)}, {pg.size()} times {describe(output)}"
        )

    def body(run: Algorithms) -> None:
        flat, whole = Flat(output), Flat(input)
        run.reduce_scatter(flat.array, np.split(whole.array, pg.size()), made, kind)
        flat.written()

    name = f"reduce_scatter_tensor {describe(output)} {made.name}"
    return _start(pg, name, body, async_op, output)


def all_to_all(
    output_tensor_list: Sequence[Any],
    input_tensor_list: Sequence[Any],
    group: Any = None,
    async_op: bool = False,
) -> Any:
    """Each rank sends a tensor to each and gets one from each."""
    pg = member(group)
    if pg is None:
        return None
    _check_list("output_tensor_list", output_tensor_list, pg.size())
    _check_list("input_tensor_list", input_tensor_list, pg.size())

    def body(run: Algorithms) -> None:
        into = [Flat(t) for t in output_tensor_list]
        run.all_to_all([Flat(t).array for t in input_tensor_list], [f.array for f in into])
        for flat in into:
            flat.written()

    kinds = sorted({str(t.dtype) for t in (*output_tensor_list, *input_tensor_list)})
    return _start(pg, f"all_to_all {' '.join(kinds)}", body, async_op, output_tensor_list)


def all_to_all_single(
    output: Any,
    input: Any,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Any = None,
    async_op: bool = False,
) -> Any:
    """`all_to_all` of rows of one tensor, in equal parts or in `..._split_sizes` rows."""
    check_tensor("output", output)
    check_tensor("input", input)
    pg = member(group)
    if pg is None:
        return None
    cuts_out = _cuts("output", output, output_split_sizes, pg.size())
    cuts_in = _cuts("input", input, input_split_sizes, pg.size())

    def body(run: Algorithms) -> None:
        whole, given = Flat(output), Flat(input)
        run.all_to_all(np.split(given.array, cuts_in), np.split(whole.array, cuts_out))
        whole.written()

    kinds = sorted({str(output.dtype), str(input.dtype)})
    row = list(output.shape[1:])
    return _start(pg, f"all_to_all_single {' '.join(kinds)} rows {row}", body, async_op, output)


def _cuts(name: str, tensor: Any, sizes: Sequence[int] | None, count: int) -> list[int]:
    """Where a flat array is cut into the parts of ranks."""
    rows = tensor.shape[0] if tensor.dim() else 1
    if not sizes:
        if rows % count:
            raise ValueError(
                f"Tensor's dim 0 does not divide equally across group size: {name} has {rows} rows"
            )
        sizes = [rows // count] * count
    if len(sizes) != count or sum(sizes) != rows:
        raise ValueError(
            f"Split sizes doesn't match total dim 0 size: {name} {list(sizes)}, {rows}"
        )
    width = Flat(tensor).array.size // rows if rows else 0
    return [int(n) for n in np.cumsum(sizes)[:-1] * width]


def barrier(
    group: Any = None,
    async_op: bool = False,
    device_ids: Any = None,
    timeout: datetime.timedelta | None = None,
) -> Any:
    """Wait until all ranks have come here."""
    if device_ids is not None:
        raise RuntimeError("Function argument device_ids not supported for the backend tcp (gloo)")
    pg = member(group)
    if pg is None:
        return None
    patience = None if timeout is None else seconds_of(timeout)
    return pg.run(Call("barrier", caller()), Algorithms.sync, async_op, None, patience)


def monitored_barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
    """A barrier whose error names the ranks that did not come (with `wait_all_ranks`, all)."""
    pg = member(group)
    if pg is None:
        return
    patience = pg.timeout if timeout is None else seconds_of(timeout)

    def body(run: Algorithms) -> None:
        if run.me:
            run.deadline += GRACE  # rank 0 knows who is missing: it is to say so first
            run.exchange({0: (memoryview(b""),)}, {})
            run.exchange({}, {0: memoryview(b"")})
            return
        missing = []
        for i in run.others:
            try:
                run.exchange({}, {i: memoryview(b"")})
                run.step = 0
            except DistBackendError:
                missing.append(pg.ranks[i])
                run.deadline += 0.05
                run.step = 0
                if not wait_all_ranks:
                    break
        if missing:
            names = ", ".join(map(str, missing))
            raise DistBackendError(
                f"Rank {names} failed to pass monitoredBarrier in {patience * 1000:.0f} ms"
            )
        run.step = 1
        run.exchange({i: (memoryview(b""),) for i in run.others}, {})

    pg.run(Call("monitored_barrier", caller()), body, False, None, patience)
