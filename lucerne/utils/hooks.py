"""`lucerne.utils.hooks`."""

from lucerne.tensor.autograd.hooks import RemovableHandle as RemovableHandle
