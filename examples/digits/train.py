"""Read handwritten digits, with a small network of dense or of convolutional layers.

python examples/digits/train.py --steps 200
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
import common

try:
    from sklearn.datasets import load_digits
except ImportError:
    sys.exit("this example reads scikit-learn's digits: pip install scikit-learn")

args = common.options(
    "handwritten digits, 8 x 8 pixels", steps=200, batch=64, rate=0.05, momentum=0.9, model="conv"
)
torch = common.framework(args)
nn, F = torch.nn, torch.nn.functional


def data():
    """Images from 0 to 1 and labels; every fifth image is kept for the test."""
    digits = load_digits()
    images = torch.from_numpy((digits.images / 16).astype("float32")).unsqueeze(1)
    labels = torch.from_numpy(digits.target.astype("int64"))
    test = torch.arange(len(labels)) % 5 == 0
    return images[~test], labels[~test], images[test], labels[test]


def mlp():
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, 128),
        nn.GELU(),
        nn.Linear(128, 64),
        nn.GELU(),
        nn.Linear(64, 10),
    )


def conv():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.GELU(),
        nn.Conv2d(16, 32, 3, padding=1), nn.GELU(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(32 * 4 * 4, 64), nn.GELU(), nn.Linear(64, 10),
    )  # fmt: skip


images, labels, test_images, test_labels = data()
model = {"mlp": mlp, "conv": conv}[args.model]()
optimizer = torch.optim.SGD(model.parameters(), lr=args.rate, momentum=args.momentum)
run = common.Run(args)
run.initial(model)
for _ in run:
    batch = torch.randint(0, len(labels), (args.batch,))
    loss = F.cross_entropy(model(images[batch]), labels[batch])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    run.loss(loss)

model.eval()
with torch.no_grad():
    right = (model(test_images).argmax(1) == test_labels).float().mean()
run.note(accuracy=round(right.item(), 4))
run.finish()
