"""Whether a transform of `lucerne.func` is running: some code asks before it writes in place."""

from __future__ import annotations

from lucerne._src.ir import dispatch
from lucerne._src.tensor.forward import dual
from lucerne.func import reverse
from lucerne.func.batching.level import BatchLevel
from lucerne.func.functional import Functionalizing

_state = dispatch.state


def transforms_active() -> bool:
    """Whether this runs inside a function that `vmap`, `grad`, `jvp` or `functionalize` calls.

    >>> import lucerne as torch
    >>> from lucerne.func.active import transforms_active
    >>> torch.vmap(lambda x: x * transforms_active())(torch.ones(2)), transforms_active()
    (tensor([1., 1.]), False)
    """
    by_hand = dual.current_level() + 1  # (`forward_ad.dual_level` is no transform)
    return (
        reverse.is_recording()
        or len(_state.forward) > by_hand
        or any(isinstance(x, BatchLevel) for x in _state.kernel_level)
        or any(isinstance(x, Functionalizing) for x in _state.call_level)
    )
