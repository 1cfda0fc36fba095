"""A two-layer network trained by hand with the functional interface on a small made-up task."""

import torch
import torch.nn.functional as F

torch.manual_seed(0)

points = torch.randn(120, 2)
labels = ((points[:, 0] * points[:, 1]) > 0).long()
train_x, test_x = points[:100], points[100:]
train_y, test_y = labels[:100], labels[100:]
print(train_x.shape, labels.sum(), train_y[:10])

w1 = (torch.rand(16, 2) - 0.5).requires_grad_()
b1 = torch.zeros(16, requires_grad=True)
w2 = (torch.rand(2, 16) - 0.5).requires_grad_()
b2 = torch.zeros(2, requires_grad=True)
params = [w1, b1, w2, b2]
velocity = [torch.zeros_like(p) for p in params]


def model(x: torch.Tensor) -> torch.Tensor:
    return F.linear(torch.tanh(F.linear(x, w1, b1)), w2, b2)


def accuracy(x: torch.Tensor, y: torch.Tensor) -> float:
    with torch.no_grad():
        return (model(x).argmax(dim=1) == y).float().mean().item()


print(f"start: loss {F.cross_entropy(model(train_x), train_y).item():.4f}")
for epoch in range(40):
    for start in range(0, 100, 20):
        batch = slice(start, start + 20)
        loss = F.cross_entropy(model(train_x[batch]), train_y[batch])
        loss.backward()
        with torch.no_grad():
            for p, v in zip(params, velocity, strict=True):
                v.mul_(0.9).add_(p.grad)
                p.sub_(v, alpha=0.1)
                p.grad = None
    if epoch % 10 == 9:
        print(f"epoch {epoch}: loss {loss.item():.3f} accuracy {accuracy(train_x, train_y):.2f}")
print(f"test accuracy {accuracy(test_x, test_y):.2f}")
print(F.softmax(model(test_x[:2]), dim=-1).sum(-1).round(decimals=5))
print(
    F.one_hot(test_y[:4], 2), F.relu(torch.tensor([-1.0, 2.0])), F.normalize(torch.ones(4), dim=0)
)
print(F.mse_loss(torch.ones(3), torch.zeros(3)), F.log_softmax(torch.zeros(2), 0))
print(loss.grad_fn.name(), model(test_x).shape, [tuple(p.shape) for p in params])
