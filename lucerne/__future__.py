"""`lucerne.__future__`: how conversions of modules treat their parameters."""

from __future__ import annotations

from lucerne.nn.modules.conversion import Switches as _Switches


def set_overwrite_module_params_on_conversion(value: bool) -> None:
    """Whether `module.to(...)` makes new parameters instead of changing the data of the old."""
    _Switches.overwrite = value


def get_overwrite_module_params_on_conversion() -> bool:
    """What `set_overwrite_module_params_on_conversion` said last."""
    return _Switches.overwrite


def set_swap_module_params_on_conversion(value: bool) -> None:
    """Whether conversions and `load_state_dict` swap tensors, so that every reference follows."""
    _Switches.swap = value


def get_swap_module_params_on_conversion() -> bool:
    """What `set_swap_module_params_on_conversion` said last."""
    return _Switches.swap
