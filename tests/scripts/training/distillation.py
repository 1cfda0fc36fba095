"""Knowledge distillation: KLDivLoss with temperature, an EMA teacher, SWA with batch norm update."""

import copy
import itertools

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


def mlp(*sizes, norm=False):
    layers = []
    for a, b in itertools.pairwise(sizes):
        layers += [
            nn.Linear(a, b, bias=not norm),
            nn.BatchNorm1d(b) if norm else nn.Identity(),
            nn.SiLU(),
        ]
    return nn.Sequential(*layers[:-2])


class DistillationLoss(nn.Module):
    def __init__(self, temperature=4.0, alpha=0.7):
        super().__init__()
        self.kl = nn.KLDivLoss(reduction="batchmean")
        self.ce = nn.CrossEntropyLoss()
        self.T, self.alpha = temperature, alpha

    def forward(self, student_logits, teacher_logits, target):
        soft = self.kl(
            F.log_softmax(student_logits / self.T, dim=-1), F.softmax(teacher_logits / self.T, -1)
        )
        return self.alpha * self.T**2 * soft + (1 - self.alpha) * self.ce(student_logits, target)


x = torch.randn(64, 10)
y = (x[:, :3].sum(1) > 0).long() + (x[:, 3] > 0.5).long()
loader = DataLoader(TensorDataset(x, y), batch_size=16)

teacher = mlp(10, 32, 32, 3, norm=True)
for step, (xb, yb) in enumerate(loader):
    if step == 0:
        opt = torch.optim.NAdam(teacher.parameters(), lr=1e-2)
    loss = F.cross_entropy(teacher(xb), yb)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(f"teacher {step} {loss.item():.4f}")
teacher.eval()
for p in teacher.parameters():
    p.requires_grad_(False)

student = mlp(10, 8, 3)
print(sum(p.numel() for p in teacher.parameters()), sum(p.numel() for p in student.parameters()))
criterion = DistillationLoss()
optimizer = torch.optim.RAdam(student.parameters(), lr=5e-2)
ema = AveragedModel(student, multi_avg_fn=get_ema_multi_avg_fn(0.9))
before = copy.deepcopy(student.state_dict())
for epoch in range(2):
    for xb, yb in loader:
        with torch.no_grad():
            target = teacher(xb)
        loss = criterion(student(xb), target, yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ema.update_parameters(student)
    drift = sum((ema.module.state_dict()[k] - v).abs().sum() for k, v in before.items())
    print(f"student {epoch} {loss.item():.4f} drift {drift:.4f} averaged {ema.n_averaged}")

twin = copy.deepcopy(student)
print(all(torch.equal(a, b) for a, b in zip(twin.parameters(), student.parameters())))
with torch.no_grad():
    for param in twin.parameters():
        param.add_(torch.randn_like(param) * 0.1)
print(any(torch.equal(a, b) for a, b in zip(twin.parameters(), student.parameters())))

# A momentum teacher written by hand, as in self-supervised code.
online, target_net = mlp(10, 16, 4, norm=True), None
target_net = copy.deepcopy(online).requires_grad_(False)
opt = torch.optim.SGD(online.parameters(), lr=0.1)
for step in range(3):
    views = x[:16] + 0.1 * torch.randn(2, 16, 10)
    online_out = F.normalize(online(views[0]), dim=-1)
    with torch.no_grad():
        target_out = F.normalize(target_net(views[1]), dim=-1)
    loss = 2 - 2 * (online_out * target_out).sum(-1).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for q, k in zip(online.parameters(), target_net.parameters()):
            k.data.mul_(0.99).add_((1 - 0.99) * q.detach().data)
        for q, k in zip(online.buffers(), target_net.buffers()):
            k.copy_(q)
    print(f"byol {step} {loss.item():.4f}")

swa_model = AveragedModel(online)
swa_scheduler = SWALR(opt, swa_lr=0.05, anneal_epochs=2)
for _ in range(3):
    swa_model.update_parameters(online)
    opt.step()
    swa_scheduler.step()
update_bn(loader, swa_model)
print(swa_model.n_averaged, opt.param_groups[0]["lr"], swa_model.module[1].running_mean[:2].shape)
print(list(swa_model.state_dict())[:3])
