"""A variational autoencoder that learns to draw rings, bars and crosses.

python examples/vae/train.py --steps 200
"""

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[1]))
import common

args = common.options(
    "a variational autoencoder on little drawings",
    steps=200, batch=64, images=2048, hidden=128, code=8, rate=2e-3, show=4,
)  # fmt: skip
torch = common.framework(args)
nn, F = torch.nn, torch.nn.functional

SIZE = 16


def drawings(count, seed):
    """Images of a ring, a bar or a cross, at random places and in random sizes."""
    random = np.random.default_rng(seed)
    rows, columns = np.mgrid[:SIZE, :SIZE]
    images = np.zeros((count, SIZE, SIZE), np.float32)
    for image in images:
        y, x = random.uniform(5, SIZE - 6, 2)
        size, width = random.uniform(2.5, 5.0), random.uniform(0.8, 1.5)
        down, across = np.abs(rows - y), np.abs(columns - x)
        kind = random.integers(3)
        if kind == 0:
            far = np.abs(np.hypot(down, across) - size)
        elif kind == 1:
            far = np.where(down <= size, across, np.inf)
        else:
            near = np.minimum(down, across)
            far = np.where(np.maximum(down, across) <= size, near, np.inf)
        image[:] = np.clip(1.5 - far / width, 0, 1)
    return torch.from_numpy(images.reshape(count, -1))


class VAE(nn.Module):
    """Describe an image by a few normal variables, and draw it again from them."""

    def __init__(self, hidden, code):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(SIZE * SIZE, hidden), nn.SiLU())
        self.mean, self.spread = nn.Linear(hidden, code), nn.Linear(hidden, code)
        self.decode = nn.Sequential(
            nn.Linear(code, hidden), nn.SiLU(), nn.Linear(hidden, SIZE * SIZE)
        )

    def forward(self, x):
        h = self.encode(x)
        mean, log_var = self.mean(h), self.spread(h)
        code = mean + torch.randn_like(mean) * torch.exp(0.5 * log_var)
        return self.decode(code), mean, log_var


def loss_of(drawn, x, mean, log_var):
    """How badly the image was drawn, and how far the codes are from standard normal ones."""
    drawing = F.binary_cross_entropy_with_logits(drawn, x, reduction="sum")
    codes = -0.5 * torch.sum(1 + log_var - mean.pow(2) - log_var.exp())
    return (drawing + codes) / len(x)


def picture(images):
    """Images side by side, as text."""
    rows = [[" .:*#"[min(4, int(v * 5))] for v in row] for row in images.transpose(0, 1).flatten(1)]
    return "\n".join("".join(row) for row in rows)


data = drawings(args.images, args.seed)
model = VAE(args.hidden, args.code)
optimizer = torch.optim.Adam(model.parameters(), lr=args.rate)

run = common.Run(args)
run.initial(model)
run.initial(model)
for _ in run:
    x = data[torch.randint(len(data), (args.batch,))]
    drawn, mean, log_var = model(x)
    loss = loss_of(drawn, x, mean, log_var)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    run.loss(loss)
run.finish()

if args.show:
    with torch.no_grad():
        seen = data[: args.show]
        again = torch.sigmoid(model(seen)[0])
        new = torch.sigmoid(model.decode(torch.randn(args.show, args.code)))
    for label, images in (("images", seen), ("drawn again", again), ("made up", new)):
        print(f"{label}:\n{picture(images.reshape(-1, SIZE, SIZE))}")
