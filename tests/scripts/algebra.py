"""A tour of linear algebra."""

import torch

torch.set_printoptions(precision=3, sci_mode=False)
a = torch.tensor([[4.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 2.0]], dtype=torch.double)
b = torch.tensor([1.0, 2.0, 3.0], dtype=torch.double)

print("-- products")
print(a @ b, a @ a, b @ b, torch.dot(b, b), torch.outer(b, b), torch.mv(a, b), torch.mm(a, a))
print(torch.linalg.multi_dot([a, a, a]), torch.linalg.matrix_power(a, 3), torch.trace(a))
batch = torch.arange(12, dtype=torch.double).reshape(2, 2, 3)
print(torch.bmm(batch, batch.mT), batch @ a, torch.einsum("bij,kj->bik", batch, a))
print(torch.tensordot(batch, a, dims=1), torch.kron(torch.eye(2, dtype=torch.double), a[:1]))
print(torch.cross(b, b.flip(0), dim=0), torch.linalg.vecdot(batch, batch), torch.addmm(a, a, a))

print("-- solving")
x = torch.linalg.solve(a, b)
print(x, torch.allclose(a @ x, b), torch.linalg.inv(a) @ a)
print(torch.linalg.lstsq(a[:, :2], b).solution, torch.linalg.pinv(a[:, :2]).shape)
print(
    torch.linalg.det(a), torch.linalg.slogdet(a), torch.linalg.matrix_rank(a), torch.linalg.cond(a)
)

print("-- factors")
low = torch.linalg.cholesky(a)
print(low, torch.allclose(low @ low.mT, a))
q, r = torch.linalg.qr(a)
print(torch.allclose(q @ r, a), torch.allclose(q.mT @ q, torch.eye(3, dtype=torch.double)))
values, vectors = torch.linalg.eigh(a)
print(values, torch.allclose(vectors @ torch.diag(values) @ vectors.mT, a))
u, s, vh = torch.linalg.svd(a)
print(s, torch.allclose(u @ torch.diag_embed(s) @ vh, a), torch.linalg.svdvals(a))
print(torch.linalg.eigvals(torch.tensor([[0.0, 1.0], [-1.0, 0.0]])))

print("-- norms")
print(torch.linalg.norm(b), torch.linalg.norm(a), torch.linalg.norm(a, 1))
print(f"{torch.linalg.norm(a, 'nuc'):.3f}")
print(torch.linalg.vector_norm(b, ord=1), torch.linalg.matrix_norm(a, ord=2), b.norm(p=3))

print("-- structure")
print(a.tril(), a.triu(1), a.diag(), torch.diag(b), torch.block_diag(a[:1, :1], a[1:, 1:]))
print(torch.eye(2, 3), torch.vander(b), torch.tril_indices(3, 3), a.mT is not a)

print("-- derivatives")
m = a.clone().requires_grad_()
torch.linalg.slogdet(m).logabsdet.backward()
print(m.grad, torch.allclose(m.grad, torch.linalg.inv(a).mT))
m.grad = None
torch.linalg.solve(m, b).sum().backward()
print(m.grad)
m.grad = None
torch.linalg.eigvalsh(m).max().backward()
print(m.grad)

print("-- errors")
for attempt in (
    lambda: torch.linalg.inv(torch.zeros(2, 2)),
    lambda: torch.linalg.cholesky(-torch.eye(2)),
    lambda: torch.linalg.inv(torch.ones(2, 3)),
    lambda: torch.ones(2, 3) @ torch.ones(4),
    lambda: torch.dot(torch.ones(2, 2), torch.ones(2)),
):
    try:
        attempt()
    except RuntimeError as error:
        print(str(error).split("\n")[0][:60])
torch.set_printoptions(profile="default")
