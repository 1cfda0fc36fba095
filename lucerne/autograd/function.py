"""`lucerne.autograd.function`."""

from lucerne.tensor.autograd.function import Function as Function
from lucerne.tensor.autograd.function import FunctionCtx as FunctionCtx
from lucerne.tensor.autograd.function import once_differentiable as once_differentiable
