"""Mixed precision: autocast to bfloat16, GradScaler with unscale and clip, gradient accumulation."""

import contextlib

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device_type = "cuda" if torch.cuda.is_available() else "cpu"
device = torch.device(device_type)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.bn = nn.BatchNorm2d(8)
        self.fc = nn.Linear(8 * 4 * 4, 5)
        self.seen = []

    def forward(self, x):
        x = self.conv(x)
        self.seen.append(x.dtype)
        x = F.adaptive_avg_pool2d(F.relu(self.bn(x)), 4)
        x = self.fc(x.flatten(1))
        self.seen.append(x.dtype)
        return x


def batches(n):
    for _ in range(n):
        yield torch.randn(4, 3, 8, 8), torch.randint(0, 5, (4,))


model = Net().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
use_amp = True
scaler = torch.amp.GradScaler(device_type, enabled=use_amp, init_scale=2.0**8, growth_interval=2)
accumulate = 2
for i, (x, y) in enumerate(batches(6)):
    with torch.autocast(device_type=device_type, dtype=torch.bfloat16, enabled=use_amp):
        output = model(x.to(device, non_blocking=True))
        loss = F.cross_entropy(output, y.to(device)) / accumulate
    scaler.scale(loss).backward()
    if (i + 1) % accumulate == 0:
        scaler.unscale_(optimizer)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        print(f"{i}: loss {loss.item():.1f} norm {norm:.1f} scale {scaler.get_scale()}")
print(set(model.seen), {p.dtype for p in model.parameters()}, loss.dtype)
print(sorted(scaler.state_dict()))

# A step with an infinite gradient is left out and the scale goes down.
before = model.fc.weight.detach().clone()
x, y = next(batches(1))
scaler.scale(F.cross_entropy(model(x), y)).backward()
model.fc.weight.grad[0, 0] = float("inf")
scaler.step(optimizer)
scaler.update()
print(torch.equal(before, model.fc.weight), scaler.get_scale())
optimizer.zero_grad()

# What autocast does to single ops, and how to leave it.
a, b = torch.randn(3, 3), torch.randn(3, 3)
with torch.autocast("cpu", dtype=torch.bfloat16):
    print(
        (a @ b).dtype,
        (a + b).dtype,
        torch.softmax(a @ b, -1).dtype,
        torch.is_autocast_enabled("cpu"),
    )
    with torch.autocast("cpu", enabled=False):
        print((a.float() @ b.float()).dtype)
    print(F.mse_loss(a @ b, b).dtype, torch.cat([a @ b, b]).dtype)

ctx = contextlib.nullcontext() if device_type == "cpu" else torch.autocast(device_type)
with ctx:
    print(model.eval()(x).dtype)


@torch.autocast("cpu", dtype=torch.bfloat16)
def forward(inputs):
    return model(inputs)


print(forward(x).dtype)
half = Net().bfloat16().eval()
print(half(x.bfloat16()).dtype, next(half.parameters()).dtype, half.bn.num_batches_tracked.dtype)

if torch.cuda.is_available():
    torch.cuda.synchronize()
off = torch.amp.GradScaler(enabled=False)
loss = F.cross_entropy(model.train()(x), y)
print(off.scale(loss) is loss, off.is_enabled(), off.get_scale())
