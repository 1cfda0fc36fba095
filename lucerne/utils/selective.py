"""Selective checkpointing: a policy says which results are kept and which are computed again."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from lucerne._src.base.tree import tree_map
from lucerne._src.ir.dispatch import Interpreter
from lucerne._src.ir.op import Op
from lucerne._src.tensor.base import make_tensor
from lucerne._src.tensor.tensor import Tensor


class CheckpointPolicy(Enum):
    """What a policy function says about a call."""

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4
    PREFER_CPU_OFFLOAD = 5


_KEEP = frozenset(CheckpointPolicy) - {
    CheckpointPolicy.MUST_RECOMPUTE,
    CheckpointPolicy.PREFER_RECOMPUTE,
}
SAC_IGNORED_OPS = {"detach"}
"""Names of ops no policy is asked about."""


class SelectiveCheckpointContext:
    """What a policy function knows beside the call: in which of the two passes it is."""

    def __init__(self, *, is_recompute: bool, op_output: Any = None) -> None:
        self.is_recompute = is_recompute
        self.op_output = op_output


def _name(op: Any) -> str:
    """Of an op of the table, or of a public function (`torch.matmul`)."""
    if isinstance(op, Op):
        return op.name
    if callable(op) and hasattr(op, "__name__"):
        return str(op.__name__)
    raise ValueError(
        f"Expected op in `op_list` to be a function such as torch.matmul but got: {op} of type "
        f"{type(op)}"
    )


def _bare(t: Tensor) -> Any:
    """The same memory without a history."""
    return make_tensor(t._storage, t._offset, t._meta)


class _Kept:
    """A result, and how often its memory had been written to."""

    def __init__(self, t: Tensor) -> None:
        self.tensor = _bare(t)
        self.version = self.tensor._version


class _Store(Interpreter):
    """Keeps the results of the kernels of one call."""

    level = "kernel"

    def __init__(self, kept: list[Any], may_change: bool = True) -> None:
        self.kept, self.may_change = kept, may_change

    def run(self, op: Op, args: tuple[Any, ...], out: Any, proceed: Any) -> Any:
        result = proceed(op, args, out)
        if out is None and op.kind != "view":
            self.kept.append(tree_map(lambda t: _Kept(t) if isinstance(t, Tensor) else t, result))
        return result


class _Give(_Store):
    """Answers the kernels of the same call with what was kept."""

    def run(self, op: Op, args: tuple[Any, ...], out: Any, proceed: Any) -> Any:
        if out is not None or op.kind == "view" or not self.kept:
            return proceed(op, args, out)
        return tree_map(self._unchanged, self.kept.pop(0))

    def _unchanged(self, x: Any) -> Any:
        if not isinstance(x, _Kept):
            return x
        if not self.may_change and x.tensor._version != x.version:
            raise RuntimeError(
                "Tensor cached during selective activation checkpoint has been mutated. Hint: "
                "allow_cache_entry_mutation=True lets it have its new values"
            )
        return x.tensor


class _Pass(Interpreter):
    """Sees the calls of one pass; `kept` goes from the first pass to the second."""

    def __init__(
        self, policy: Callable[..., Any], kept: dict[str, list[Any]], again: bool, may_change: bool
    ) -> None:
        self.policy = policy
        self.kept = kept
        self.again, self.may_change = again, may_change

    def run(self, op: Op, args: tuple[Any, ...], out: Any, proceed: Any) -> Any:
        if out is not None or op.name in SAC_IGNORED_OPS or not self._keeps(op, args):
            return proceed(op, args, out)
        calls = self.kept.setdefault(op.name, [])
        if not self.again:
            calls.append([])
            with _Store(calls[-1]):
                return proceed(op, args, out)
        with _Give(calls.pop(0) if calls else [], self.may_change):
            return proceed(op, args, out)

    def _keeps(self, op: Op, args: tuple[Any, ...]) -> bool:
        said = self.policy(SelectiveCheckpointContext(is_recompute=self.again), op, *args)
        return said if isinstance(said, bool) else said in _KEEP


def create_selective_checkpoint_contexts(
    policy_fn_or_list: Any, allow_cache_entry_mutation: bool = False
) -> tuple[Any, Any]:
    """Two contexts for `checkpoint(..., context_fn=...)`: calls the policy keeps run only once.

    The policy is a list of functions to keep (`[torch.matmul]`), or a function of a
    `SelectiveCheckpointContext`, the op and its arguments that says a `CheckpointPolicy`.

    >>> import functools
    >>> import lucerne as torch
    >>> from lucerne.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts
    >>> keep = functools.partial(create_selective_checkpoint_contexts, [torch.matmul])
    >>> x = torch.ones(2, 2, requires_grad=True)
    >>> y = checkpoint(lambda t: (t @ t).exp(), x, use_reentrant=False, context_fn=keep)
    >>> y.sum().backward()
    """
    if isinstance(policy_fn_or_list, list):
        names = {_name(op) for op in policy_fn_or_list}

        def policy(context: Any, op: Op, *args: Any) -> CheckpointPolicy:
            kept = op.name in names
            return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

    elif callable(policy_fn_or_list):
        policy = policy_fn_or_list
    else:
        raise TypeError("policy_fn_or_list must be either a function or a list of ops.")
    kept: dict[str, list[Any]] = {}
    may_change = allow_cache_entry_mutation
    return _Pass(policy, kept, False, may_change), _Pass(policy, kept, True, may_change)
