"""Automatic differentiation: graphs, gradients, what stops them, and products with Jacobians."""

import torch

print("-- a one-layer model")
torch.manual_seed(0)
x = torch.ones(5)
y = torch.zeros(3)
w = torch.randn(5, 3, requires_grad=True)
b = torch.randn(3, requires_grad=True)
z = torch.matmul(x, w) + b
loss = torch.nn.functional.binary_cross_entropy_with_logits(z, y)
print(z.grad_fn is not None, loss.requires_grad, loss.is_leaf, w.is_leaf)
loss.backward()
print(w.grad)
print(b.grad)

print("-- switching it off")
z = torch.matmul(x, w) + b
print(z.requires_grad)
with torch.no_grad():
    z = torch.matmul(x, w) + b
print(z.requires_grad, torch.is_grad_enabled())
print((torch.matmul(x, w) + b).detach().requires_grad)
with torch.no_grad(), torch.enable_grad():
    print((w * 2).requires_grad)
with torch.inference_mode():
    print((w * 2).is_inference())

print("-- the textbook example")
a = torch.tensor([2.0, 3.0], requires_grad=True)
c = torch.tensor([6.0, 4.0], requires_grad=True)
q = 3 * a**3 - c**2
print(q)
q.backward(gradient=torch.tensor([1.0, 1.0]))
print(9 * a.detach() ** 2 == a.grad, -2 * c.detach() == c.grad)

print("-- gradients add up")
inp = torch.eye(4, 5, requires_grad=True)
out = (inp + 1).pow(2).t()
out.backward(torch.ones_like(out), retain_graph=True)
print(inp.grad)
out.backward(torch.ones_like(out), retain_graph=True)
print(inp.grad[0])
inp.grad.zero_()
out.backward(torch.ones_like(out))
print(inp.grad[0])

print("-- the graph")
a = torch.tensor(2.0, requires_grad=True)
d = (a * 3 + 1).exp()
node = d.grad_fn
while node is not None:
    print(node.name().split("::")[-1])
    node = node.next_functions[0][0] if node.next_functions else None

print("-- grad without side effects, twice")
x = torch.tensor(2.0, requires_grad=True)
(first,) = torch.autograd.grad(x**4, x, create_graph=True)
(second,) = torch.autograd.grad(first, x, create_graph=True)
(third,) = torch.autograd.grad(second, x)
print(first, second, third, x.grad)

print("-- hooks, leaves and non-leaves")
x = torch.tensor([1.0, 2.0], requires_grad=True)
seen = []
handle = x.register_hook(lambda g: seen.append(g.tolist()))
y = x * 2
y.retain_grad()
y.sum().backward()
handle.remove()
print(seen, x.grad, y.grad)

print("-- errors")
for attempt in (
    lambda: torch.ones(2, requires_grad=True).backward(),
    lambda: torch.ones(2).sum().backward(),
    lambda: torch.ones(2, dtype=torch.int64, requires_grad=True),
    lambda: torch.ones(2, requires_grad=True).add_(1),
    lambda: torch.ones(2, requires_grad=True).numpy(),
):
    try:
        attempt()
    except RuntimeError as error:
        print(type(error).__name__, "-", str(error).split(".")[0])
x = torch.ones(2, requires_grad=True)
y = (x * x).sum()
y.backward()
try:
    y.backward()
except RuntimeError as error:
    print(str(error).split("(")[0])
x = torch.ones(2, requires_grad=True)
y = x * 1
z = y * y
y.add_(1)
try:
    z.sum().backward()
except RuntimeError as error:
    print(str(error)[:72])

print("-- whole Jacobians")


def f(v: torch.Tensor) -> torch.Tensor:
    return torch.stack([v[0] * v[1], v[1] ** 3])


v = torch.tensor([2.0, 3.0])
print(torch.autograd.functional.jacobian(f, v))
print(torch.autograd.functional.hessian(lambda v: (v**3).sum(), v))
print(torch.autograd.functional.vjp(f, v, torch.tensor([1.0, 0.0])))
print(torch.autograd.gradcheck(f, v.double().requires_grad_()))
