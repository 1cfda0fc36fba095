"""`lucerne.autograd`: differentiation."""

from __future__ import annotations

from lucerne.tensor.autograd.api import backward as backward
from lucerne.tensor.autograd.api import grad as grad
from lucerne.tensor.autograd.modes import enable_grad as enable_grad
from lucerne.tensor.autograd.modes import inference_mode as inference_mode
from lucerne.tensor.autograd.modes import no_grad as no_grad
from lucerne.tensor.autograd.modes import set_grad_enabled as set_grad_enabled
