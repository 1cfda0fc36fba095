"""Connectionist temporal classification: the likelihood of a label sequence under all alignments.

Labels with blanks between them are the states; `alpha[t, s]` is the log probability of all ways to
be in state s after t frames, `beta` of all ways to go on from there. Both have the shape (frames,
batch, states).
"""

from __future__ import annotations

from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.ir.define import composite, front
from lucerne._src.ir.dispatch import raise_if, recording
from lucerne._src.ir.op import Tensor
from lucerne._src.ops.copy import join
from lucerne._src.ops.copy.cast import filled
from lucerne._src.ops.index.advanced import index_nd, index_put_nd
from lucerne._src.ops.index.scatter import scatter_fold
from lucerne._src.ops.nn.loss import FUNCTIONAL

NEVER = float("-inf")


def _log_add(*terms: Tensor) -> Tensor:
    """log of the sum of exponentials, without nan where all terms are -inf."""
    top = terms[0]
    for t in terms[1:]:
        top = top.maximum(t)
    safe = top.masked_fill(top == NEVER, 0)
    total = (terms[0] - safe).exp()
    for t in terms[1:]:
        total = total + (t - safe).exp()
    return total.log() + safe


def _arange(n: int, device: Any) -> Tensor:
    return filled((n,), 1, dt.int64, device, None).cumsum(0) - 1


def _states(targets: Tensor, blank: int) -> Tensor:
    """blank l1 blank l2 ... blank for each of the batch."""
    batch, length = targets.shape
    states = filled((batch, 2 * length + 1), blank, dt.int64, targets.device, None)
    odd = _arange(length, targets.device) * 2 + 1
    return index_put_nd(states, (None, odd), targets, False)


def _may_skip(states: Tensor, blank: int) -> Tensor:
    """Whether a state may be reached from two before: another label, not a blank."""
    before = _shift(states, 2, blank)
    places = _arange(states.shape[1], states.device)
    return (states != blank) & (states != before) & (places >= 2)


def _shift(x: Tensor, by: int, fill: float) -> Tensor:
    """Columns moved right by `by` (left if negative), `fill` moving in."""
    width = x.shape[1]
    step = min(abs(by), width)
    gap = filled((x.shape[0], step), fill, x.dtype, x.device, None)
    if by > 0:
        return join.cat([gap, x.narrow(1, 0, width - step)], 1)
    return join.cat([x.narrow(1, step, width - step), gap], 1)


def _forward(emitted: Tensor, states: Tensor, skip: Tensor) -> Tensor:
    """alpha for every frame."""
    first = _arange(states.shape[1], states.device) < 2
    alpha = emitted.select(0, 0).masked_fill(~first, NEVER)
    found = [alpha]
    for t in range(1, emitted.shape[0]):
        jump = _shift(alpha, 2, NEVER).masked_fill(~skip, NEVER)
        alpha = _log_add(alpha, _shift(alpha, 1, NEVER), jump) + emitted.select(0, t)
        found.append(alpha)
    return join.stack(found, 0)


def _backward(
    emitted: Tensor, states: Tensor, skip: Tensor, lengths: Tensor, ends: Tensor
) -> Tensor:
    """beta for every frame, from each sequence's last frame backwards."""
    places = _arange(states.shape[1], states.device)
    last = (places == ends.unsqueeze(1)) | ((places == ends.unsqueeze(1) - 1) & (places >= 0))
    skip_to = _shift(skip.to(dt.int64), -2, 0).to(dt.bool_)
    beta = filled(tuple(states.shape), NEVER, emitted.dtype, emitted.device, None)
    found = []
    for t in range(emitted.shape[0] - 1, -1, -1):
        here = emitted.select(0, t)
        jump = _shift(beta, -2, NEVER).masked_fill(~skip_to, NEVER)
        beta = _log_add(beta, _shift(beta, -1, NEVER), jump) + here
        starts = (lengths == t + 1).unsqueeze(1)
        beta = here.masked_fill(~last, NEVER).where(starts, beta)
        found.append(beta)
    return join.stack(found[::-1], 0)


def _emissions(log_probs: Tensor, states: Tensor) -> Tensor:
    """The log probability of each state's label in each frame."""
    where = states.unsqueeze(0).expand(log_probs.shape[0], *states.shape)
    return log_probs.gather(2, where)


def _ctc_vjp(
    g: Any, y: Any, log_probs: Tensor, targets: Tensor, input_lengths: Tensor,
    target_lengths: Tensor, blank: int,
) -> Tensor:  # fmt: skip
    """Torch's gradient: that of the scores before the log_softmax that made `log_probs`."""
    loss, alpha = y
    states = _states(targets, blank)
    emitted = _emissions(log_probs, states)
    skip = _may_skip(states, blank)
    beta = _backward(emitted, states, skip, input_lengths, target_lengths * 2)
    paths = (alpha + beta - emitted).masked_fill(emitted == NEVER, NEVER)
    where = states.unsqueeze(0).expand(paths.shape)
    nothing = filled(tuple(log_probs.shape), 0, log_probs.dtype, log_probs.device, None)
    posterior = scatter_fold(nothing, 2, where, (paths + loss.reshape(1, -1, 1)).exp(), "add")
    steps = _arange(log_probs.shape[0], log_probs.device).reshape(-1, 1, 1)
    given = g[0].reshape(1, -1, 1)
    unused = (steps >= input_lengths.reshape(1, -1, 1)) | (given == 0)
    return ((log_probs.exp() - posterior) * given).masked_fill(unused, 0)


@composite(internal=True, name="_ctc_alignments", vjp={"log_probs": _ctc_vjp}, out=False)
def ctc_alignments(
    log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor, blank: int
) -> Any:
    """The negative log likelihood of each sequence, and alpha."""
    states = _states(targets, blank)
    emitted = _emissions(log_probs, states)
    alpha = _forward(emitted, states, _may_skip(states, blank))
    batch = _arange(states.shape[0], states.device)
    frames = (input_lengths - 1).clamp(min=0)
    final = index_nd(alpha, (frames, batch))
    ends = (target_lengths * 2).unsqueeze(1)
    last = final.gather(1, ends).squeeze(1)
    before = final.gather(1, (ends - 1).clamp(min=0)).squeeze(1)
    loss = -_log_add(last, before.masked_fill(target_lengths == 0, NEVER))
    # No frames explain no labels with certainty, and anything else not at all.
    empty = filled((), 0, loss.dtype, loss.device, None).where(target_lengths == 0, float("inf"))
    return empty.where(input_lengths == 0, loss), alpha


def _lengths(values: Any, like: Tensor, name: str, batch: int) -> Tensor:
    if not hasattr(values, "_meta"):
        values = like.new_tensor(list(values), dtype=dt.int64)
    if values.dtype.category != dt.INTEGER:
        raise RuntimeError(f"{name} must be integral")
    values = values.to(dt.int64).reshape(-1)
    if values.shape[0] != batch:
        raise RuntimeError(f"{name} must be of size batch_size")
    return values


def _known(given: Any, lengths: Tensor) -> list[int] | None:
    """The lengths; None: they are computed by a function that is being captured."""
    if not hasattr(given, "_meta"):
        return list(map(int, given))
    return None if recording() else lengths.tolist()


_WHERE = "(while checking arguments for ctc_loss_allocate_outputs)"


def _check_targets(targets: Tensor, lengths: Tensor, known: list[int] | None) -> None:
    """Rows must be long enough, labels one after another as many as the lengths say."""
    if targets.ndim == 2:
        size, need = targets.shape[1], max(known or [0])
        wrong = (lengths > size).any() if known is None else need > size
        wanted = f"at least {need} at dimension 1"
    else:
        size, need = targets.shape[0], sum(known or [])
        wrong = lengths.sum() != size if known is None else need != size
        wanted = f"{need} at dimension 0"
    if known is None:
        text = f"targets have the size {size}, which their lengths do not fit"
        raise_if(wrong, lambda: RuntimeError(f"{text} {_WHERE}"))
    elif wrong:
        raise RuntimeError(
            f"Expected tensor to have size {wanted}, but got size {size} for argument #2 'targets' "
            f"{_WHERE}"
        )


def _padded_targets(
    targets: Tensor, lengths: Tensor, known: list[int] | None, batch: int, labels: int
) -> Tensor:
    """Targets as (batch, longest), from rows or from one after another.

    With a length that isn't known the rows are as long as they can be: what stands behind their
    ends counts for nothing, whatever label is put there.
    """
    _check_targets(targets, lengths, known)
    if known is None and targets.ndim == 2:
        return targets.to(dt.int64).clamp(0, labels - 1)
    longest = targets.shape[0] if known is None else max(known, default=0)
    if targets.ndim == 2:
        return targets.to(dt.int64).narrow(1, 0, longest)
    starts = lengths.cumsum(0) - lengths
    places = starts.unsqueeze(1) + _arange(longest, targets.device)
    if not targets.numel():
        return filled((batch, longest), 0, dt.int64, targets.device, None)
    return index_nd(targets.to(dt.int64), (places.clamp(max=targets.shape[0] - 1),))


def _check_lengths(name: str, lengths: Tensor, known: list[int] | None, most: int | None) -> None:
    text = f"Expected {name} to have value at"
    if known is None:
        wrong = lengths < 0 if most is None else (lengths < 0) | (lengths > most)
        limit = "least 0" if most is None else f"least 0 and at most {most}"
        raise_if(wrong.any(), lambda: RuntimeError(f"{text} {limit} {_WHERE}"))
        return
    for n in known:
        if n < 0:
            raise RuntimeError(f"{text} least 0, but got value {n} {_WHERE}")
        if most is not None and n > most:
            raise RuntimeError(f"{text} most {most}, but got value {n} {_WHERE}")


@front(namespace=FUNCTIONAL, autocast="full")
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Negative log likelihood of label sequences, summed over every alignment with the frames.

    >>> import lucerne
    >>> even = lucerne.zeros(3, 1, 4).log_softmax(2)
    >>> lucerne.nn.functional.ctc_loss(even, lucerne.tensor([[1, 2]]), (3,), (2,))
    tensor(1.2747)
    """
    if log_probs.dtype not in (dt.float32, dt.float64):
        raise RuntimeError(f"\"ctc_loss_cpu\" not implemented for '{dt.cxx_name(log_probs.dtype)}'")
    single = log_probs.ndim == 2
    if single:
        log_probs = log_probs.unsqueeze(1)
        targets = targets.unsqueeze(0) if targets.ndim == 1 else targets
    batch = log_probs.shape[1]
    frames = _lengths(input_lengths, log_probs, "input_lengths", batch)
    lengths = _lengths(target_lengths, log_probs, "target_lengths", batch)
    if not 0 <= blank < log_probs.shape[2]:
        raise RuntimeError("blank must be in label range")
    known = _known(target_lengths, lengths)
    _check_lengths("input_lengths", frames, _known(input_lengths, frames), log_probs.shape[0])
    _check_lengths("target_lengths", lengths, known, None)
    rows = _padded_targets(targets, lengths, known, batch, log_probs.shape[2])
    loss = ctc_alignments(log_probs, rows, frames, lengths, blank)[0]
    if zero_infinity:
        loss = loss.masked_fill(loss == float("inf"), 0)
    if reduction == "mean":
        return (loss / lengths.clamp(min=1)).mean()
    if reduction == "sum":
        return loss.sum()
    if reduction != "none":
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return loss.squeeze(0) if single else loss
