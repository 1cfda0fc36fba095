"""Indexing and broadcasting, the NumPy way and beyond."""

import torch

x = torch.arange(24).reshape(2, 3, 4)

print("-- basic")
print(x[0], x[1, 2], x[1, 2, 3], x[-1, -1, -1])
print(x[:, 1], x[..., 0], x[0, :, ::2], x[0, 1:, 1:3])
print(x[None].shape, x[:, None].shape, x[..., None].shape, x[()].shape)
print(x[True].shape, x[False].shape, x[0][1][2])

print("-- with tensors and lists")
print(x[:, [0, 2]], x[torch.tensor([1, 0, 1])].shape)
print(x[[0, 1], [1, 2]], x[[0, 1], [1, 2], [2, 3]], x[:, [0, 1], [2, 3]])
print(x[torch.tensor([[0, 1], [1, 0]])].shape, x[0, torch.tensor([-1])])
print(x[:, torch.tensor([True, False, True])].shape, x[x % 5 == 0], x[x > 100])
print(x[0, :, [1, 3]], x[[0], ..., [1]].shape)

print("-- writing")
y = torch.zeros(3, 4)
y[1] = 1
y[:, 0] = torch.tensor([5.0, 6.0, 7.0])
y[0, 1:3] += 2
y[y == 0] = -1
print(y)
y[[0, 2], [3, 3]] = torch.tensor([8.0, 9.0])
y[..., 2] *= 10
y[None, 1] = torch.arange(4)
print(y)
z = torch.zeros(5)
z[torch.tensor([0, 1, 1, 3])] = 1
z.index_put_((torch.tensor([1, 1, 1]),), torch.tensor(1.0), accumulate=True)
print(z, z.nonzero(), z.nonzero(as_tuple=True), torch.where(z > 0))

print("-- picking functions")
m = torch.arange(9.0).reshape(3, 3)
print(m.gather(1, torch.tensor([[0], [2], [1]])), m.index_select(0, torch.tensor([2, 0])))
print(m.masked_select(m > 4), m.take(torch.tensor([0, 8])), m.diagonal(), m.narrow(1, 1, 2))
print(torch.zeros(3, 3).scatter_(1, torch.tensor([[0], [2], [1]]), 1.0))
print(torch.zeros(3).scatter_add_(0, torch.tensor([0, 0, 2]), torch.ones(3)))
print(m.masked_fill(m < 3, 0.0), torch.where(m > 4, m, -m), m.tril(), m.triu(1))
print(m.flip(0), m.roll(1, 1), m.rot90(), m.sort(descending=True), m.topk(2, dim=0))
print(torch.take_along_dim(m, m.argsort(descending=True), 1), m.unfold(0, 2, 1).shape)

print("-- broadcasting")
a = torch.arange(3).reshape(3, 1)
b = torch.arange(4)
print(a + b, (a * b).shape, a == b)
print(torch.broadcast_shapes((3, 1), (1, 4)), [t.shape for t in torch.broadcast_tensors(a, b)])
print(b.expand(2, 4).stride(), b.broadcast_to(3, 4).shape, a.expand(-1, 4))
points = torch.tensor([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]])
print((points[:, None] - points[None]).pow(2).sum(-1).sqrt())
print(torch.cdist(points, points), torch.outer(points[1], points[2]))
print((torch.ones(2, 1, 3) + torch.ones(4, 1)).shape)

print("-- errors")
for attempt in (
    lambda: x[2],
    lambda: x[0, 0, 0, 0],
    lambda: x[[3]],
    lambda: x[1.5],
    lambda: x["a"],
    lambda: torch.ones(2) + torch.ones(3),
    lambda: x[torch.ones(2, 2, dtype=torch.bool)],
    lambda: x.view(5),
    lambda: torch.ones(2, 3) @ torch.ones(2, 3),
    lambda: torch.cat([torch.ones(2, 2), torch.ones(2, 3)]),
    lambda: torch.ones(2).sum(1),
):
    try:
        attempt()
    except (IndexError, RuntimeError, TypeError) as error:
        print(type(error).__name__, "-", str(error).split("\n")[0])
