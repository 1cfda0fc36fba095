"""Fit a cubic to a sine four times: NumPy, tensors, autograd, a Function of one's own."""

import math

import numpy as np
import torch

STEPS = 60


def show(name: str, *numbers: object) -> None:
    print(name, " ".join(f"{round(float(n), 4) + 0.0:.4f}" for n in numbers))


print("-- NumPy")
x = np.linspace(-math.pi, math.pi, 200)
y = np.sin(x)
a, b, c, d = 0.1, -0.2, 0.3, -0.4
rate = 1e-4
for step in range(STEPS):
    guess = a + b * x + c * x**2 + d * x**3
    loss = np.square(guess - y).sum()
    if step % 20 == 19:
        show(f"step {step}", loss)
    grad = 2 * (guess - y)
    a -= rate * 0.01 * grad.sum()
    b -= rate * 0.01 * (grad * x).sum()
    c -= rate * 0.01 * (grad * x**2).sum()
    d -= rate * 0.01 * (grad * x**3).sum()
show("result", a, b, c, d)

print("-- tensors, derivatives by hand")
dtype = torch.double
x = torch.linspace(-math.pi, math.pi, 200, dtype=dtype)
y = torch.sin(x)
a, b, c, d = (torch.tensor(v, dtype=dtype) for v in (0.1, -0.2, 0.3, -0.4))
for step in range(STEPS):
    guess = a + b * x + c * x**2 + d * x**3
    loss = (guess - y).pow(2).sum().item()
    if step % 20 == 19:
        show(f"step {step}", loss)
    grad = 2.0 * (guess - y)
    a -= rate * 0.01 * grad.sum()
    b -= rate * 0.01 * (grad * x).sum()
    c -= rate * 0.01 * (grad * x**2).sum()
    d -= rate * 0.01 * (grad * x**3).sum()
show("result", a, b, c, d)

print("-- autograd")
weights = [torch.tensor(v, dtype=dtype, requires_grad=True) for v in (0.1, -0.2, 0.3, -0.4)]
a, b, c, d = weights
for step in range(STEPS):
    loss = (a + b * x + c * x**2 + d * x**3 - y).pow(2).sum()
    if step % 20 == 19:
        show(f"step {step}", loss)
    loss.backward()
    with torch.no_grad():
        for weight in weights:
            weight -= rate * 0.01 * weight.grad
            weight.grad = None
show("result", a, b, c, d)
print(f"y = {a.item():.3f} + {b.item():.3f} x + {c.item():.3f} x^2 + {d.item():.3f} x^3")


class Legendre3(torch.autograd.Function):
    """The third Legendre polynomial, with its derivative written out."""

    @staticmethod
    def forward(ctx, input):
        ctx.save_for_backward(input)
        return 0.5 * (5 * input**3 - 3 * input)

    @staticmethod
    def backward(ctx, grad_output):
        (input,) = ctx.saved_tensors
        return grad_output * 1.5 * (5 * input**2 - 1)


print("-- a Function of one's own")
weights = [torch.full((), v, dtype=dtype, requires_grad=True) for v in (0.0, -1.0, 0.0, 0.3)]
a, b, c, d = weights
for step in range(STEPS):
    guess = a + b * Legendre3.apply(c + d * x)
    loss = (guess - y).pow(2).sum()
    if step % 20 == 19:
        show(f"step {step}", loss)
    loss.backward()
    with torch.no_grad():
        for weight in weights:
            weight -= 5e-6 * weight.grad
            weight.grad = None
show("result", a, b, c, d)
print(torch.autograd.gradcheck(Legendre3.apply, torch.randn(4, dtype=dtype, requires_grad=True)))
