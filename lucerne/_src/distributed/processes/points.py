"""Messages from rank to rank, and objects between ranks, in torch's spelling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lucerne._src.distributed.processes import objects
from lucerne._src.distributed.processes.algorithms import Algorithms
from lucerne._src.distributed.processes.frames import Call, caller
from lucerne._src.distributed.processes.group import ProcessGroup
from lucerne._src.distributed.processes.groups import member, number_in
from lucerne._src.distributed.processes.values import Flat, check_tensor
from lucerne._src.distributed.processes.work import Work


def _signature(verb: str, tensor: Any) -> str:
    return f"{verb} {str(tensor.dtype).rpartition('.')[2]} {tensor.numel()}"


def isend(
    tensor: Any,
    dst: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> Work | None:
    """Begin to send a tensor to a rank."""
    check_tensor("tensor", tensor)
    pg = member(group)
    if pg is None:
        return None
    peer = number_in(pg, "dst", dst, group_dst)
    if peer == pg.rank():
        raise ValueError("Invalid destination rank: destination rank should not be the same as us")
    return pg.mailbox.send(
        peer, tag, Flat(tensor).array, Call(_signature("send", tensor), caller())
    )


def irecv(
    tensor: Any,
    src: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_src: int | None = None,
) -> Work | None:
    """Begin to receive a tensor from a rank, or from whichever sends first."""
    check_tensor("tensor", tensor)
    pg = member(group)
    if pg is None:
        return None
    anyone = src is None and group_src is None
    peer = None if anyone else number_in(pg, "src", src, group_src)
    if peer == pg.rank():
        raise ValueError("Invalid source rank: source rank should not be the same as us")
    flat = Flat(tensor)
    call = Call(_signature("recv", tensor), caller())
    return _Received(pg, flat, pg.mailbox.receive(peer, tag, flat.array, call))


class _Received(Work):
    """A `recv`: the tensor knows that it was written when somebody has waited."""

    def __init__(self, pg: ProcessGroup, flat: Flat, inner: Work) -> None:
        super().__init__("recv", flat.tensor, lambda: pg.ranks[inner.source_rank()])
        self._inner, self._flat, self._noted = inner, flat, False
        self._done = inner._done
        self._patience = pg.timeout

    def wait(self, timeout: Any = None) -> bool:
        self._inner.wait(self._patience if timeout is None else timeout)
        if not self._noted:
            self._noted = True
            self._flat.written()
        return True


def send(
    tensor: Any,
    dst: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> None:
    """Send a tensor to a rank; its memory may be used again afterwards."""
    work = isend(tensor, dst, group, tag, group_dst)
    if work is not None:
        work.wait()


def recv(
    tensor: Any,
    src: int | None = None,
    group: Any = None,
    tag: int = 0,
    group_src: int | None = None,
) -> int:
    """Receive a tensor from a rank, or from whichever sends first; whose it was."""
    work = irecv(tensor, src, group, tag, group_src)
    if work is None:
        return -1
    work.wait()
    return work.source_rank()


class P2POp:
    """One `isend` or `irecv` for `batch_isend_irecv`."""

    def __init__(
        self,
        op: Callable[..., Work | None],
        tensor: Any,
        peer: int | None = None,
        group: Any = None,
        tag: int = 0,
        group_peer: int | None = None,
    ) -> None:
        if op not in (isend, irecv):
            raise ValueError(
                "Invalid ``op``. Expected ``op`` to be of type ``torch.distributed.isend`` or "
                "``torch.distributed.irecv``."
            )
        check_tensor("tensor", tensor)
        self.op, self.tensor, self.tag = op, tensor, tag
        self.group = member(group)
        if self.group is None:
            raise ValueError("P2POp: this rank is not in the group")
        self.group_peer = number_in(self.group, "peer", peer, group_peer)
        self.peer = self.group.ranks[self.group_peer]

    def __repr__(self) -> str:
        return f"P2POp({self.op.__name__} pg={self.group}, peer={self.peer}, tag={self.tag})"


def batch_isend_irecv(p2p_op_list: list[P2POp]) -> list[Work]:
    """Begin several sends and receives; none waits for another."""
    if not p2p_op_list or not all(isinstance(op, P2POp) for op in p2p_op_list):
        raise ValueError(
            "Invalid ``p2p_op_list``. Each op is expected to be of type "
            "``torch.distributed.P2POp``."
        )
    made = [p.op(p.tensor, p.peer, p.group, p.tag) for p in p2p_op_list]
    return [work for work in made if work is not None]


# ---- objects -----------------------------------------------------------------------------------


def _run_bytes(pg: ProcessGroup, name: str, mine: bytes) -> list[bytes]:
    """The bytes of each rank, on all."""
    found: list[bytes] = []
    pg.run(Call(name, caller()), lambda run: found.extend(run.all_gather_bytes(mine)))
    return found


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """Give an object of each rank to all. Objects travel as data, and can run no code."""
    pg = member(group)
    if pg is None:
        return
    if len(object_list) != pg.size():
        raise ValueError(
            f"object_list has {len(object_list)} places, and the group {pg.size()} ranks"
        )
    for k, raw in enumerate(_run_bytes(pg, "all_gather_object", objects.to_bytes(obj))):
        object_list[k] = objects.from_bytes(raw)


def gather_object(
    obj: Any,
    object_gather_list: list[Any] | None = None,
    dst: int | None = None,
    group: Any = None,
    group_dst: int | None = None,
) -> None:
    """Give an object of each rank to rank `dst`."""
    pg = member(group)
    if pg is None:
        return
    root = number_in(pg, "dst", dst, group_dst, 0)
    if pg.rank() == root and object_gather_list is None:
        raise ValueError("Argument ``object_gather_list`` must be specified on destination rank.")
    if pg.rank() != root and object_gather_list is not None:
        raise ValueError("Argument object_gather_list should NOT be specified on other ranks.")
    raws = _run_bytes(pg, f"gather_object to {root}", objects.to_bytes(obj))
    if object_gather_list is not None:
        for k, raw in enumerate(raws):
            object_gather_list[k] = objects.from_bytes(raw)


def broadcast_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
) -> None:
    """Give the objects in the list of rank `src` to all, in the places of their lists."""
    _check_device(device)
    pg = member(group)
    if pg is None:
        return
    root = number_in(pg, "src", src, group_src, 0)
    mine = objects.to_bytes(list(object_list)) if pg.rank() == root else b""
    raw = _run_bytes(pg, f"broadcast_object_list {len(object_list)} from {root}", mine)[root]
    if pg.rank() != root:
        object_list[:] = objects.from_bytes(raw)


def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    src: int | None = None,
    group: Any = None,
    group_src: int | None = None,
) -> None:
    """Give each rank its object of the list that rank `src` has, in the first place of its own."""
    pg = member(group)
    if pg is None:
        return
    if not isinstance(scatter_object_output_list, list) or not scatter_object_output_list:
        raise ValueError(
            "Expected argument scatter_object_output_list to be a list of size at least 1."
        )
    root = number_in(pg, "src", src, group_src, 0)
    parts: Sequence[bytes] = ()
    if pg.rank() == root:
        if scatter_object_input_list is None or len(scatter_object_input_list) != pg.size():
            raise ValueError("source rank must provide one object for each rank")
        parts = [objects.to_bytes(value) for value in scatter_object_input_list]
    found: list[bytes] = []

    def body(run: Algorithms) -> None:
        found.append(run.scatter_bytes(parts, root))

    pg.run(Call(f"scatter_object_list from {root}", caller()), body)
    scatter_object_output_list[0] = objects.from_bytes(found[0])


def send_object_list(
    object_list: list[Any],
    dst: int | None = None,
    group: Any = None,
    device: Any = None,
    group_dst: int | None = None,
    use_batch: bool = False,
) -> None:
    """Send the objects of a list to a rank."""
    _check_device(device)
    pg = member(group)
    if pg is None:
        return
    peer = number_in(pg, "dst", dst, group_dst)
    raw = objects.to_bytes(list(object_list))
    works = [
        pg.mailbox.send(peer, OBJECTS, array, Call(f"send objects {len(object_list)}", caller()))
        for array in objects.as_message(raw)
    ]
    for work in works[::-1] if use_batch else works:
        work.wait()


def recv_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: Any = None,
    device: Any = None,
    group_src: int | None = None,
    use_batch: bool = False,
) -> int:
    """Receive as many objects as the list has places; whose they are."""
    _check_device(device)
    pg = member(group)
    if pg is None:
        return -1
    anyone = src is None and group_src is None
    peer = None if anyone else number_in(pg, "src", src, group_src)
    patience = 0.0 if use_batch else pg.timeout
    call = Call(f"recv objects {len(object_list)}", caller())
    length = objects.empty_length()
    work = pg.mailbox.receive(peer, OBJECTS, length, call)
    work.wait(patience)
    source = work.source_rank()
    body = objects.empty_body(length)
    pg.mailbox.receive(source, OBJECTS, body, call).wait(patience)
    object_list[:] = objects.from_bytes(body.tobytes())
    return pg.ranks[source]


OBJECTS = -(1 << 40)
"""The tag of objects: no user's."""


def _check_device(device: Any) -> None:
    if device is not None and str(device).partition(":")[0] != "cpu":
        raise ValueError(f"objects travel over the host, not over {device}: leave device out")
