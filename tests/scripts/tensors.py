"""A first walk through tensors: making them, asking them, computing with them, sharing them."""

import numpy as np
import torch

torch.manual_seed(1)

print("-- from data")
rows = [[1, 2], [3, 4]]
x_data = torch.tensor(rows)
x_np = torch.from_numpy(np.array(rows))
print(x_data, x_np, torch.equal(x_data, x_np))
print(torch.ones_like(x_data))
print(torch.rand_like(x_data, dtype=torch.float))

print("-- from a shape")
shape = (2, 3)
print(torch.rand(shape))
print(torch.ones(shape), torch.zeros(shape))
print(torch.empty(shape).shape, torch.full(shape, 7), torch.arange(0, 10, 3))
print(torch.linspace(-1, 1, 5), torch.eye(3), torch.randint(0, 10, (2, 4)))
print(torch.tensor([1.5, 2]), torch.tensor([True, False]), torch.tensor(3 + 4j))

print("-- attributes")
t = torch.rand(3, 4)
print(t.shape, t.dtype, t.device, t.ndim, t.numel(), t.requires_grad, t.is_contiguous())
print(t.T.shape, t.T.stride(), t.T.is_contiguous(), t.nbytes, t.element_size())

print("-- indexing and joining")
grid = torch.ones(4, 4)
print(f"first row: {grid[0]}")
print(f"first column: {grid[:, 0]}")
print(f"last column: {grid[..., -1]}")
grid[:, 1] = 0
print(grid)
print(torch.cat([grid, grid, grid], dim=1).shape)
print(torch.stack([grid, grid]).shape)

print("-- arithmetic")
y1 = grid @ grid.T
y2 = grid.matmul(grid.T)
y3 = torch.empty_like(y1)
torch.matmul(grid, grid.T, out=y3)
print(y1, torch.equal(y1, y2), torch.equal(y1, y3))
z1 = grid * grid
z3 = torch.empty_like(grid)
torch.mul(grid, grid, out=z3)
print(z1, torch.equal(z1, z3))
total = grid.sum()
print(total, total.item(), type(total.item()).__name__)
print(grid.mean(dim=0), grid.std(), grid.max(), grid.argmax(), grid.cumsum(1))
print(torch.clamp(torch.arange(-3, 4), -1, 2), torch.sign(torch.tensor([-2.0, 0.0, 3.0])))
print(5 // torch.tensor(2), torch.tensor(-7) % 3, 2 ** torch.arange(4), -torch.ones(2))

print("-- in place")
grid.add_(5)
print(grid)

print("-- sharing memory with NumPy")
t = torch.ones(5)
n = t.numpy()
t.add_(1)
print(t, n)
n = np.ones(5)
t = torch.from_numpy(n)
np.add(n, 1, out=n)
print(t, n)

print("-- reshaping")
a = torch.arange(12)
print(a.view(3, 4), a.view(-1, 6).shape, a.reshape(2, 2, 3)[1, 0])
print(a.view(3, 4).permute(1, 0).contiguous().view(-1))
print(a[None, :, None].squeeze().shape, a.unsqueeze(1).shape, a.view(3, 4).flatten())
print(a.view(3, 4).split(2), [p.tolist() for p in a.chunk(5)])

print("-- types")
print(torch.tensor([1.7, -1.7]).int(), torch.tensor([0, 2]).bool(), torch.tensor(3).double())
print(torch.ones(2, dtype=torch.float16) + 1, torch.ones(2, dtype=torch.bfloat16) * 3)
print((torch.tensor([1]) + 1.5).dtype, (torch.tensor([1]) / 2).dtype, (torch.ones(1) + 1j).dtype)
