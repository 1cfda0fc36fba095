"""Pruning: parameters multiplied by a mask of zeros and ones.

A pruned `weight` is a plain tensor, computed before each forward from the parameter `weight_orig`
and the buffer `weight_mask`; `remove` makes it a parameter again.
"""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

from lucerne._src.tensor import api as lu


class BasePruningMethod(ABC):
    """A way to choose what is pruned: subclasses write `compute_mask` and set PRUNING_TYPE."""

    _tensor_name: str
    PRUNING_TYPE: str

    def __call__(self, module: Any, inputs: Any) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """A mask for scores `t` that is zero wherever `default_mask` is."""

    def apply_mask(self, module: Any) -> Any:
        """The original times the mask."""
        if self._tensor_name is None:
            raise AssertionError(f"Module {module} has to be pruned")
        mask = getattr(module, self._tensor_name + "_mask")
        original = getattr(module, self._tensor_name + "_orig")
        return mask.to(dtype=original.dtype) * original

    @classmethod
    def apply(
        cls, module: Any, name: str, *args: Any, importance_scores: Any = None, **kwargs: Any
    ) -> Any:
        """Prune `module.name`, on top of earlier prunings of it."""
        earlier = [
            (k, hook)
            for k, hook in module._forward_pre_hooks.items()
            if isinstance(hook, BasePruningMethod) and hook._tensor_name == name
        ]
        if len(earlier) > 1:
            raise AssertionError(
                f"Avoid adding multiple pruning hooks to the same tensor {name} of module "
                f"{module}. Use a PruningContainer."
            )
        method: Any = cls(*args, **kwargs)
        method._tensor_name = name
        for k, old in earlier:
            del module._forward_pre_hooks[k]
            if not isinstance(old, PruningContainer):
                container = PruningContainer(old)
                container._tensor_name = name
                old = container
            old.add_pruning_method(method)
            method = old
        original = getattr(module, name)
        _check_scores(importance_scores, original, f"parameter {name} of {module}")
        scores = original if importance_scores is None else importance_scores
        if not isinstance(method, PruningContainer):
            module.register_parameter(name + "_orig", module._parameters[name])
            del module._parameters[name]
            default = lu.ones_like(original)
        else:
            default = (
                getattr(module, name + "_mask").detach().clone(memory_format=lu.contiguous_format)
            )
        try:
            mask = method.compute_mask(scores, default_mask=default)
            module.register_buffer(name + "_mask", mask)
            setattr(module, name, method.apply_mask(module))
            module.register_forward_pre_hook(method)
        except Exception:
            if not isinstance(method, PruningContainer):
                kept = getattr(module, name + "_orig")
                module.register_parameter(name, kept)
                del module._parameters[name + "_orig"]
            raise
        return method

    def prune(self, t: Any, default_mask: Any = None, importance_scores: Any = None) -> Any:
        """A pruned copy of a tensor."""
        _check_scores(importance_scores, t, "tensor t")
        scores = t if importance_scores is None else importance_scores
        mask = lu.ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(scores, default_mask=mask)

    def remove(self, module: Any) -> None:
        """Make the pruned tensor a parameter; what was pruned stays zero."""
        name = self._tensor_name
        weight = self.apply_mask(module)
        if hasattr(module, name):
            delattr(module, name)
        original = module._parameters[name + "_orig"]
        original.data = weight.data
        del module._parameters[name + "_orig"]
        del module._buffers[name + "_mask"]
        setattr(module, name, original)


def _check_scores(scores: Any, t: Any, what: str) -> None:
    if scores is not None and scores.shape != t.shape:
        raise AssertionError(
            f"importance_scores should have the same shape as {what}, got {scores.shape} vs "
            f"{t.shape}"
        )


class PruningContainer(BasePruningMethod):
    """Several prunings of one tensor, each on what the ones before have left."""

    def __init__(self, *args: Any) -> None:
        self._pruning_methods: tuple[Any, ...] = ()
        if len(args) == 1 and not isinstance(args[0], Iterable):
            self._tensor_name = args[0]._tensor_name
        elif len(args) == 1:
            args = tuple(args[0])
        for method in args:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: Any) -> None:
        """Add a pruning that is applied after those that are there."""
        if not isinstance(method, BasePruningMethod) and method is not None:
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if method is not None and self._tensor_name != method._tensor_name:
            raise ValueError(
                "Can only add pruning methods acting on the parameter named "
                f"'{self._tensor_name}' to PruningContainer {self}. Found '{method._tensor_name}'"
            )
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._pruning_methods)

    def __getitem__(self, idx: Any) -> Any:
        return self._pruning_methods[idx]

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The default mask times that of the last method on what is still there."""
        method = self._pruning_methods[-1]
        mask = default_mask.to(dtype=t.dtype)
        if method.PRUNING_TYPE == "unstructured":
            where: Any = mask == 1
        elif method.PRUNING_TYPE == "structured":
            dim = method.dim % t.dim()
            kept = mask.sum(dim=[d for d in range(t.dim()) if d != dim]) != 0
            where = tuple(kept if d == dim else slice(None) for d in range(t.dim()))
        elif method.PRUNING_TYPE == "global":
            where = tuple(slice(None) for _ in range(t.dim()))
        else:
            raise ValueError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")
        new = mask.clone()
        new[where] = method.compute_mask(t[where], default_mask=mask[where]).to(new.dtype)
        return new


class Identity(BasePruningMethod):
    """Prunes nothing: gives a module the form that pruned ones have."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        return default_mask

    @classmethod
    def apply(cls, module: Any, name: str) -> Any:  # type: ignore[override]
        return super().apply(module, name)


class RandomUnstructured(BasePruningMethod):
    """Prunes elements at random."""

    PRUNING_TYPE = "unstructured"

    def __init__(self, amount: Any) -> None:
        _validate_pruning_amount_init(amount)
        self.amount = amount

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        count = _amount_of(self.amount, t.nelement())
        mask = default_mask.clone(memory_format=lu.contiguous_format)
        if count:
            prob = lu.rand_like(t)
            mask.view(-1)[lu.topk(prob.view(-1), k=count).indices] = 0
        return mask

    @classmethod
    def apply(cls, module: Any, name: str, amount: Any) -> Any:  # type: ignore[override]
        return super().apply(module, name, amount=amount)


class L1Unstructured(BasePruningMethod):
    """Prunes the elements of smallest size."""

    PRUNING_TYPE = "unstructured"

    def __init__(self, amount: Any) -> None:
        _validate_pruning_amount_init(amount)
        self.amount = amount

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        count = _amount_of(self.amount, t.nelement())
        mask = default_mask.clone(memory_format=lu.contiguous_format)
        if count:
            smallest = lu.topk(lu.abs(t).view(-1), k=count, largest=False)
            mask.view(-1)[smallest.indices] = 0
        return mask

    @classmethod
    def apply(  # type: ignore[override]
        cls, module: Any, name: str, amount: Any, importance_scores: Any = None
    ) -> Any:
        return super().apply(module, name, amount=amount, importance_scores=importance_scores)


def _channel_mask(t: Any, dim: int, channels: Any, *, keep: bool) -> Any:
    """One where a channel is kept: `channels` are those kept, or those pruned."""
    mask = lu.zeros_like(t) if keep else lu.ones_like(t)
    where: list[Any] = [slice(None)] * t.dim()
    where[dim] = channels
    mask[tuple(where)] = 1 if keep else 0
    return mask


class RandomStructured(BasePruningMethod):
    """Prunes whole channels at random."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: Any, dim: int = -1) -> None:
        _validate_pruning_amount_init(amount)
        self.amount = amount
        self.dim = dim

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        _validate_structured_pruning(t)
        _validate_pruning_dim(t, self.dim)
        size = t.shape[self.dim]
        count = _amount_of(self.amount, size)
        if not count:
            return default_mask
        threshold = lu.kthvalue(prob := lu.rand(size), k=count).values
        channels = (prob > threshold).nonzero().view(-1)
        mask = _channel_mask(t, self.dim, channels, keep=True)
        return mask * default_mask.to(dtype=mask.dtype)

    @classmethod
    def apply(  # type: ignore[override]
        cls, module: Any, name: str, amount: Any, dim: int = -1
    ) -> Any:
        return super().apply(module, name, amount=amount, dim=dim)


class LnStructured(BasePruningMethod):
    """Prunes the channels of smallest norm."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: Any, n: Any, dim: int = -1) -> None:
        _validate_pruning_amount_init(amount)
        self.amount = amount
        self.n = n
        self.dim = dim

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        _validate_structured_pruning(t)
        _validate_pruning_dim(t, self.dim)
        size = t.shape[self.dim]
        count = _amount_of(self.amount, size)
        if not count:
            return default_mask
        norms = _compute_norm(t, self.n, self.dim)
        channels = lu.topk(norms, k=size - count, largest=True).indices
        mask = _channel_mask(t, self.dim, channels, keep=True)
        return mask * default_mask.to(dtype=mask.dtype)

    @classmethod
    def apply(  # type: ignore[override]
        cls, module: Any, name: str, amount: Any, n: Any, dim: int, importance_scores: Any = None
    ) -> Any:
        return super().apply(
            module, name, amount=amount, n=n, dim=dim, importance_scores=importance_scores
        )


class CustomFromMask(BasePruningMethod):
    """Prunes what a given mask says."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Any) -> None:
        self.mask = mask

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        if default_mask.shape != self.mask.shape:
            raise AssertionError(
                f"default_mask shape {default_mask.shape} must match self.mask shape "
                f"{self.mask.shape}"
            )
        return default_mask * self.mask.to(dtype=default_mask.dtype)

    @classmethod
    def apply(cls, module: Any, name: str, mask: Any) -> Any:  # type: ignore[override]
        return super().apply(module, name, mask=mask)


# ---- functions ----------------------------------------------------------------------------------


def identity(module: Any, name: str) -> Any:
    """Give a parameter the pruned form without pruning anything."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Any, name: str, amount: Any) -> Any:
    """Prune a number (int) or a share (float) of the elements at random."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: Any, name: str, amount: Any, importance_scores: Any = None) -> Any:
    """Prune the elements of smallest size.

    >>> import lucerne as torch
    >>> from lucerne.nn.utils import prune
    >>> m = torch.nn.Module()
    >>> m.w = torch.nn.Parameter(torch.tensor([1.0, -3.0, 2.0, 4.0]))
    >>> _ = prune.l1_unstructured(m, "w", amount=0.5)
    >>> m.w_mask
    tensor([0., 1., 0., 1.])
    """
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module: Any, name: str, amount: Any, dim: int) -> Any:
    """Prune channels along `dim` at random."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(
    module: Any, name: str, amount: Any, n: Any, dim: int, importance_scores: Any = None
) -> Any:
    """Prune the channels along `dim` whose n-norm is smallest."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: Any, name: str, mask: Any) -> Any:
    """Prune what is zero in a mask."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(
    parameters: Any, pruning_method: Any, importance_scores: Any = None, **kwargs: Any
) -> None:
    """Prune (module, name) pairs together, as if they were one vector."""
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    given = {} if importance_scores is None else importance_scores
    if not isinstance(given, dict):
        raise TypeError("global_unstructured(): importance_scores must be of type dict")
    pairs = list(parameters)
    scores = lu.cat([given.get((m, name), getattr(m, name)).reshape(-1) for m, name in pairs])
    defaults = lu.cat([
        getattr(m, name + "_mask", lu.ones_like(getattr(m, name))).reshape(-1) for m, name in pairs
    ])  # fmt: skip
    container = PruningContainer()
    container._tensor_name = "temp"
    method = pruning_method(**kwargs)
    method._tensor_name = "temp"
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method '
            f"{pruning_method} of type {method.PRUNING_TYPE}"
        )
    container.add_pruning_method(method)
    mask = container.compute_mask(scores, defaults)
    start = 0
    for module, name in pairs:
        param = getattr(module, name)
        end = start + param.numel()
        custom_from_mask(module, name, mask=mask[start:end].view_as(param))
        start = end


def remove(module: Any, name: str) -> Any:
    """Make a pruned tensor a parameter; what was pruned stays zero."""
    for k, hook in module._forward_pre_hooks.items():
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            hook.remove(module)
            del module._forward_pre_hooks[k]
            return module
    raise ValueError(
        f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed"
    )


def is_pruned(module: Any) -> bool:
    """Whether this module or one below has a pruned tensor."""
    return any(
        isinstance(hook, BasePruningMethod)
        for _, below in module.named_modules()
        for hook in below._forward_pre_hooks.values()
    )


# ---- checks -------------------------------------------------------------------------------------


def _validate_pruning_amount_init(amount: Any) -> None:
    if not isinstance(amount, numbers.Real):
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    whole = isinstance(amount, numbers.Integral)
    size = float(amount)
    if (whole and size < 0) or (not whole and not 0.0 <= size <= 1.0):
        raise ValueError(
            f"amount={amount} should either be a float in the range [0, 1] or a non-negative "
            "integer"
        )


def _validate_pruning_amount(amount: Any, tensor_size: int) -> None:
    if isinstance(amount, numbers.Integral) and int(amount) > tensor_size:
        raise ValueError(
            f"amount={amount} should be smaller than the number of parameters to prune="
            f"{tensor_size}"
        )


def _validate_structured_pruning(t: Any) -> None:
    if t.dim() <= 1:
        raise ValueError(
            "Structured pruning can only be applied to multidimensional tensors. Found tensor of "
            f"shape {t.shape} with {t.dim()} dims"
        )


def _validate_pruning_dim(t: Any, dim: int) -> None:
    if dim >= t.dim():
        raise IndexError(f"Invalid index {dim} for tensor of size {t.shape}")


def _compute_nparams_toprune(amount: Any, tensor_size: int) -> int:
    return int(amount) if isinstance(amount, numbers.Integral) else round(amount * tensor_size)


def _amount_of(amount: Any, size: int) -> int:
    """How many of `size` are pruned, checked."""
    _validate_pruning_amount(amount, size)
    return _compute_nparams_toprune(amount, size)


def _compute_norm(t: Any, n: Any, dim: int) -> Any:
    """The n-norm of each channel along `dim`."""
    others = [d for d in range(t.dim()) if d != dim % t.dim()]
    return lu.norm(t, p=n, dim=others)
