"""A neural ODE: fixed-step solvers, functional_call with changed weights, gradients through time."""

import torch
import torch.nn as nn
from torch.func import functional_call
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.utils.checkpoint import checkpoint


class ODEFunc(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 20), nn.Tanh(), nn.Linear(20, 2))
        self.nfe = 0
        for m in self.net.modules():
            if isinstance(m, nn.Linear):
                nn.init.normal_(m.weight, mean=0, std=0.1)
                nn.init.constant_(m.bias, val=0)

    def forward(self, t, y):
        self.nfe += 1
        return self.net(y**3)


def euler(func, t, dt, y):
    return dt * func(t, y)


def rk4(func, t, dt, y):
    k1 = func(t, y)
    k2 = func(t + dt / 2, y + dt * k1 / 2)
    k3 = func(t + dt / 2, y + dt * k2 / 2)
    k4 = func(t + dt, y + dt * k3)
    return (k1 + 2 * k2 + 2 * k3 + k4) * dt / 6


def odeint(func, y0, t, method=rk4):
    solution = [y0]
    for t0, t1 in zip(t[:-1], t[1:]):
        solution.append(solution[-1] + method(func, t0, t1 - t0, solution[-1]))
    return torch.stack(solution)


torch.manual_seed(0)
true_A = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])
t = torch.linspace(0.0, 2.0, 21)
true_y0 = torch.tensor([[2.0, 0.0]])
with torch.no_grad():
    true_y = odeint(lambda t, y: torch.mm(y**3, true_A), true_y0, t)
print(true_y.shape, true_y[-1])


def get_batch(time=5, size=6):
    s = torch.multinomial(torch.ones(len(t) - time), size, replacement=False)
    return true_y[s], t[:time], torch.stack([true_y[s + i] for i in range(time)], dim=0)


func = ODEFunc()
optimizer = torch.optim.RMSprop(func.parameters(), lr=1e-2)
for itr in range(4):
    optimizer.zero_grad()
    batch_y0, batch_t, batch_y = get_batch()
    pred_y = odeint(func, batch_y0, batch_t)
    loss = torch.mean(torch.abs(pred_y - batch_y))
    loss.backward()
    optimizer.step()
    print("Iter {:04d} | Total Loss {:.5f} | nfe {}".format(itr, loss.item(), func.nfe))


# Checkpointed steps give the same gradients.
def gradients(step):
    func.zero_grad()
    y = true_y0
    for _ in range(4):
        y = step(y)
    y.pow(2).sum().backward()
    return parameters_to_vector([p.grad for p in func.parameters()])


plain = gradients(lambda y: y + rk4(func, 0.0, 0.1, y))
saved = gradients(
    lambda y: checkpoint(lambda z: z + rk4(func, 0.0, 0.1, z), y, use_reentrant=False)
)
print(torch.allclose(plain, saved), plain.norm())

# MAML-like: one inner step by hand, the outer gradient goes through it.
params = {k: v.clone() for k, v in func.named_parameters()}


def inner_loss(weights):
    return functional_call(func, weights, (0.0, true_y[:5, 0])).sub(true_y[1:6, 0]).pow(2).mean()


for step in range(3):
    weights = dict(func.named_parameters())
    grads = torch.autograd.grad(inner_loss(weights), list(weights.values()), create_graph=True)
    fast = {k: w - 0.1 * g for (k, w), g in zip(weights.items(), grads)}
    outer = inner_loss(fast)
    optimizer.zero_grad()
    outer.backward()
    optimizer.step()
    print(f"outer {step} {outer.item():.5f}")

vector = parameters_to_vector(func.parameters())
vector_to_parameters(torch.zeros_like(vector), func.parameters())
print(vector.shape, func(0.0, true_y0), sum(p.abs().sum() for p in params.values()) > 0)
