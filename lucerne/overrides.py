"""`lucerne.overrides`: objects and modes that take op calls over (`__torch_function__`)."""

from __future__ import annotations

from lucerne._src.overrides import BaseTorchFunctionMode as BaseTorchFunctionMode
from lucerne._src.overrides import TorchFunctionMode as TorchFunctionMode
from lucerne._src.overrides import enable_reentrant_dispatch as enable_reentrant_dispatch
from lucerne._src.overrides import get_default_nowrap_functions as get_default_nowrap_functions
from lucerne._src.overrides import get_ignored_functions as get_ignored_functions
from lucerne._src.overrides import get_overridable_functions as get_overridable_functions
from lucerne._src.overrides import get_testing_overrides as get_testing_overrides
from lucerne._src.overrides import handle_torch_function as handle_torch_function
from lucerne._src.overrides import has_torch_function as has_torch_function
from lucerne._src.overrides import has_torch_function_unary as has_torch_function_unary
from lucerne._src.overrides import has_torch_function_variadic as has_torch_function_variadic
from lucerne._src.overrides import is_tensor_like as is_tensor_like
from lucerne._src.overrides import is_tensor_method_or_property as is_tensor_method_or_property
from lucerne._src.overrides import resolve_name as resolve_name
from lucerne._src.overrides import wrap_torch_function as wrap_torch_function
