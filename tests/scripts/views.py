"""Views and in-place writes: who shares memory with whom, and what autograd makes of it."""

import torch

print("-- views share, copies do not")
base = torch.arange(6.0)
view = base.view(2, 3)
row = view[0]
copy = view.clone()
row[0] = 100
print(base, view, copy)
print(view._is_view(), view._base is base, row._base is base, copy._is_view())
print(view.data_ptr() == base.data_ptr(), row.storage_offset(), view[1].storage_offset())
print(base.view(3, 2).t().stride(), base.reshape(2, 3).data_ptr() == base.data_ptr())
print(base.view(2, 3).t().reshape(6).data_ptr() == base.data_ptr())

print("-- which operations are views")
m = torch.arange(12.0).reshape(3, 4)
for name, made in {
    "t": m.t(),
    "permute": m.permute(1, 0),
    "select": m.select(0, 1),
    "slice": m[1:],
    "step": m[:, ::2],
    "expand": m[:1].expand(3, 4),
    "unsqueeze": m.unsqueeze(0),
    "squeeze": m[:1].squeeze(),
    "diagonal": m.diagonal(),
    "narrow": m.narrow(0, 0, 2),
    "unfold": m.unfold(1, 2, 1),
    "as_strided": m.as_strided((2, 2), (1, 1)),
    "view dtype": m.view(torch.int32),
    "contiguous": m.contiguous(),
    "t contiguous": m.t().contiguous(),
    "index": m[[0, 1]],
    "flatten": m.flatten(),
    "t flatten": m.t().flatten(),
    "reshape": m.reshape(4, 3),
    "detach": m.detach(),
    "chunk": m.chunk(2)[1],
    "unbind": m.unbind()[1],
    "movedim": m.movedim(0, 1),
    "real": torch.view_as_real(torch.ones(2, dtype=torch.complex64)),
}.items():
    shares = made.untyped_storage().data_ptr() == m.untyped_storage().data_ptr()
    print(f"{name:<12} {shares!s:<6} {tuple(made.shape)} {made.stride()} {made.storage_offset()}")

print("-- writing through views")
m = torch.zeros(3, 3)
m.diagonal().fill_(1)
m[1].add_(torch.arange(3))
m.t()[0] *= 5
m[:, 1:].copy_(torch.tensor([[1.0, 2.0]]))
print(m)
m.unfold(0, 2, 1)[0, 0, 0] = -1
m.view(-1)[8] = 42
print(m, m.sum())

print("-- versions")
x = torch.zeros(2)
y = x[0]
print(x._version)
y.add_(1)
x.mul_(2)
print(x._version, y._version, x.detach()._version, x.data._version)

print("-- autograd through in-place writes")
leaf = torch.ones(3, requires_grad=True)
work = leaf * 2
work[0] = 10
work[1:].mul_(3)
print(work)
work.sum().backward()
print(leaf.grad)
leaf = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
buffer = torch.zeros(3)
buffer.copy_(leaf)
buffer.mul_(2)
part = buffer[1:]
part += leaf[:2]
print(buffer.requires_grad, part.requires_grad)
(buffer * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
print(leaf.grad)
total = torch.zeros(())
leaf = torch.tensor([0.5, 1.5], requires_grad=True)
for value in leaf:
    total += value**2
total.backward()
print(total, leaf.grad)

print("-- what is refused")
for attempt in (
    lambda: torch.ones(2, requires_grad=True).mul_(2),
    lambda: torch.ones(2, requires_grad=True)[0].mul_(2),
    lambda: torch.ones(1).expand(3).add_(1),
    lambda: torch.ones(2, 3).t().view(6),
    lambda: torch.ones(2).add_(torch.ones(3)),
    lambda: torch.ones(2, dtype=torch.int64).add_(1.5),
    lambda: torch.ones(2, dtype=torch.int64).div_(2),
    lambda: torch.ones(3).resize_(2).requires_grad_().resize_(4),
):
    try:
        attempt()
    except RuntimeError as error:
        print(str(error).split("\n")[0][:100])
with torch.no_grad():
    w = torch.ones(2, requires_grad=True)
    w -= 0.5
print(w)
out = torch.empty(0)
print(torch.add(torch.ones(2), 1, out=out) is out, out)
