"""`quantize_` and its fronts."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable
from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.quantization.codes import quantize_weight
from lucerne._src.quantization.configs import (
    Int8DynamicActivationInt8WeightConfig,
    QuantizationConfig,
)
from lucerne._src.quantization.linear import QuantizedLinear
from lucerne._src.quantization.qat import FakeQuantizedLinear, QATConfig
from lucerne._src.quantization.quality import LayerSwap, Loss, QualityReport, kept_within
from lucerne.nn.modules.linear import Linear
from lucerne.nn.modules.module import Module

_QINT8 = dt.by_name("qint8")
Filter = Callable[[Any, str], bool]


def quantize_(
    model: Any,
    config: QuantizationConfig | QATConfig,
    filter_fn: Filter | None = None,
    device: Any = None,
    *,
    check: Iterable[Any] | None = None,
    loss: Loss | None = None,
    budget: float | None = None,
) -> QualityReport | None:
    """Store the weights of a model's linear layers in few bits; the model is changed.

    `filter_fn(module, name)` says which layers (all `nn.Linear`). With `check`, batches of data,
    a report is made and given back: what each layer costs, and what the model loses. `loss(model,
    batch)` is what is measured (without it: how far the outputs are from those in float), and
    layers stay in float, the most costly first, until it has grown by no more than `budget` of
    itself.

    >>> import lucerne as torch
    >>> from lucerne.quantization import Int8WeightOnlyConfig, quantize_
    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU())
    >>> quantize_(model, Int8WeightOnlyConfig())
    >>> model[0]
    QuantizedLinear(in_features=8, out_features=4, bias=True, int8, groups of 8)
    """
    if not isinstance(config, QuantizationConfig | QATConfig):
        raise TypeError(
            "quantize_: expected a config such as Int8WeightOnlyConfig(), got "
            f"{type(config).__name__}"
        )
    if check is None and (loss is not None or budget is not None):
        raise ValueError("quantize_: `loss` and `budget` need batches to measure with: check=...")
    if device is not None:
        model.to(device)
    if isinstance(config, QATConfig):
        if check is not None:
            raise ValueError("quantize_: a report is made of finished layers: convert first")
        for swap in _found(model, filter_fn, config):
            swap.apply()
        return None
    swaps = _found(model, filter_fn, config)
    if check is not None:
        return kept_within(model, swaps, list(check), loss, budget)
    for swap in swaps:
        swap.apply()
    return None


def _found(model: Any, filter_fn: Filter | None, config: QuantizationConfig | QATConfig) -> Any:
    """The layers to exchange."""
    kind = FakeQuantizedLinear if getattr(config, "step", "") == "convert" else Linear
    chosen = filter_fn or (lambda module, name: isinstance(module, kind))
    found = []
    for name, parent, key, module in list(_places(model)):
        if not chosen(module, name):
            continue
        if not isinstance(module, Linear):
            raise TypeError(
                f"quantize_: filter_fn chose {name!r}, a {type(module).__name__}; only nn.Linear "
                "is stored in few bits"
            )
        made = _made(module, name, config)
        if made is not None:
            found.append(LayerSwap(name, parent, key, module, made))
    return found


def _places(model: Any) -> Iterable[tuple[str, Any, str, Any]]:
    """(name, owner, name in it, module) of every module below the model."""
    for prefix, parent in model.named_modules():
        for key, module in parent.named_children():
            yield (f"{prefix}.{key}" if prefix else key), parent, key, module


def _made(module: Linear, name: str, config: QuantizationConfig | QATConfig) -> Module | None:
    if isinstance(config, QATConfig):
        return config.made(module)
    size = config.groups_of
    if size is not None and module.in_features % size:
        warnings.warn(
            f"quantize_: {name!r} stays as it is: its {module.in_features} columns are no groups "
            f"of {size}",
            stacklevel=4,
        )
        return None
    weight = quantize_weight(module.weight, config.stored, size)
    made = QuantizedLinear.from_weight(weight, module.bias, dynamic=config.dynamic)
    return made.train(module.training)


def quantize_dynamic(
    model: Any,
    qconfig_spec: Any = None,
    dtype: Any = _QINT8,
    mapping: Any = None,
    inplace: bool = False,
) -> Any:
    """A copy of the model with linear layers in 8 bits, as torch.ao.quantization names it.

    >>> import lucerne as torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 4))
    >>> torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear})
    Sequential(
      (0): QuantizedLinear(in_features=8, out_features=4, bias=True, int8, groups of 8, rows in 8 bits)
    )
    """  # noqa: E501
    if dtype is not _QINT8 or mapping is not None:
        raise NotImplementedError(
            f"quantize_dynamic: dtype={dtype}, mapping={mapping}: linear layers become qint8 here; "
            "lucerne.quantization.quantize_ has other configs"
        )
    spec = {Linear} if qconfig_spec is None else set(qconfig_spec)
    odd = [s for s in spec if not isinstance(s, str) and s is not Linear]
    if odd:
        raise NotImplementedError(f"quantize_dynamic: only nn.Linear is quantized, not {odd}")
    made = model if inplace else copy.deepcopy(model)
    quantize_(
        made,
        Int8DynamicActivationInt8WeightConfig(),
        lambda module, name: isinstance(module, Linear) and (Linear in spec or name in spec),
    )
    return made
