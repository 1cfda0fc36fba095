"""`lucerne.utils`: what is built on tensors and autograd."""

from lucerne.utils import checkpoint as checkpoint
from lucerne.utils import dlpack as dlpack
from lucerne.utils import hooks as hooks
