"""`lucerne.autograd.function`."""

from lucerne._src.tensor.autograd.function import Function as Function
from lucerne._src.tensor.autograd.function import FunctionCtx as FunctionCtx
from lucerne._src.tensor.autograd.function import once_differentiable as once_differentiable
