"""`lucerne.autograd.functional`: Jacobians, Hessians and products with them."""

from lucerne._src.tensor.autograd.functional import hessian as hessian
from lucerne._src.tensor.autograd.functional import hvp as hvp
from lucerne._src.tensor.autograd.functional import jacobian as jacobian
from lucerne._src.tensor.autograd.functional import jvp as jvp
from lucerne._src.tensor.autograd.functional import vhp as vhp
from lucerne._src.tensor.autograd.functional import vjp as vjp
