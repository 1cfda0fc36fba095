"""ResNet-18 with the stem for small images, on generated pictures in the shape of CIFAR-10.

python examples/resnet18_cifar/train.py --steps 200
"""

import sys
from itertools import pairwise
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[1]))
import common

args = common.options(
    "ResNet-18 on generated CIFAR-shaped pictures",
    steps=200, batch=32, images=1024, width=16, rate=0.01, momentum=0.9, decay=5e-4,
    dtype="float32",
)  # fmt: skip
torch = common.framework(args)
nn, F = torch.nn, torch.nn.functional
dtype = getattr(torch, args.dtype)


def pictures(count, seed):
    """Ten kinds of coloured waves, (count, 3, 32, 32), with noise; and which kind each is."""
    random = np.random.default_rng(seed)
    kinds = random.integers(0, 10, count)
    y, x = np.mgrid[:32, :32] / 32
    angle, fast = kinds * np.pi / 10, 2 + kinds % 3
    along = np.cos(angle)[:, None, None] * x + np.sin(angle)[:, None, None] * y
    wave = np.sin(2 * np.pi * (fast[:, None, None] * along + random.uniform(size=(count, 1, 1))))
    colour = np.random.default_rng(1).uniform(0.2, 1, (10, 3))[kinds]
    noise = random.normal(size=(count, 3, 32, 32)) * 0.5
    images = wave[:, None] * colour[:, :, None, None] + noise
    return torch.from_numpy(images).to(dtype), torch.from_numpy(kinds)


class Block(nn.Module):
    """Two convolutions beside a short cut."""

    def __init__(self, inside, outside, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.downsample = nn.Identity()
        if stride != 1 or inside != outside:
            self.downsample = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
            )

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.downsample(x))


class ResNet18(nn.Module):
    """Four stages of two blocks; the first keeps all 32 x 32 places."""

    def __init__(self, width, classes=10):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        sizes = [width, width, 2 * width, 4 * width, 8 * width]
        stages = []
        for i, (inside, outside) in enumerate(pairwise(sizes)):
            stages += [Block(inside, outside, 2 if i else 1), Block(outside, outside, 1)]
        self.stages = nn.Sequential(*stages)
        self.fc = nn.Linear(sizes[-1], classes)

    def forward(self, x):
        x = self.stages(F.relu(self.bn1(self.conv1(x))))
        return self.fc(x.mean((2, 3)))


images, labels = pictures(args.images, args.seed)
test_images, test_labels = pictures(256, args.seed + 1)
model = ResNet18(args.width).to(dtype)
optimizer = torch.optim.SGD(
    model.parameters(), lr=args.rate, momentum=args.momentum, weight_decay=args.decay
)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(1, args.steps))
run = common.Run(args)
run.initial(model)
for _ in run:
    batch = torch.randint(0, len(labels), (args.batch,))
    loss = F.cross_entropy(model(images[batch]), labels[batch])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    run.loss(loss)

model.eval()
with torch.no_grad():
    right = (model(test_images).argmax(1) == test_labels).float().mean()
run.note(parameters=sum(p.numel() for p in model.parameters()), accuracy=round(right.item(), 4))
run.finish()
