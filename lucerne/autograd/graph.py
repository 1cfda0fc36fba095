"""`lucerne.autograd.graph`: the recorded graph and what it keeps."""

from lucerne._src.tensor.autograd.graph import GradientEdge as GradientEdge
from lucerne._src.tensor.autograd.graph import GradientNode as Node  # noqa: F401
from lucerne._src.tensor.autograd.graph import (
    allow_mutation_on_saved_tensors as allow_mutation_on_saved_tensors,
)
from lucerne._src.tensor.autograd.graph import (
    disable_saved_tensors_hooks as disable_saved_tensors_hooks,
)
from lucerne._src.tensor.autograd.graph import get_gradient_edge as get_gradient_edge
from lucerne._src.tensor.autograd.graph import increment_version as increment_version
from lucerne._src.tensor.autograd.graph import register_multi_grad_hook as register_multi_grad_hook
from lucerne._src.tensor.autograd.graph import save_on_cpu as save_on_cpu
from lucerne._src.tensor.autograd.graph import saved_tensors_hooks as saved_tensors_hooks
