"""`lucerne.autograd.functional`: Jacobians, Hessians and products with them."""

from lucerne.tensor.autograd.functional import hessian as hessian
from lucerne.tensor.autograd.functional import hvp as hvp
from lucerne.tensor.autograd.functional import jacobian as jacobian
from lucerne.tensor.autograd.functional import jvp as jvp
from lucerne.tensor.autograd.functional import vhp as vhp
from lucerne.tensor.autograd.functional import vjp as vjp
