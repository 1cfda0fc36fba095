"""Learn digits without remembering any one of them: private gradient descent.

Every example has its own gradient, cut to a length of at most `--clip`, so that none can move the
weights far; noise of that size is added to the sum. What makes it fast is `vmap(grad(loss))`: the
gradients of a whole batch in one pass.

python examples/per_sample_gradients/train.py --steps 200
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
    "private gradient descent on handwritten digits",
    steps=200, batch=64, rate=0.5, clip=1.0, noise=0.5,
)  # fmt: skip
torch = common.framework(args)
nn, F = torch.nn, torch.nn.functional
from_numpy, functional_call = torch.from_numpy, torch.func.functional_call

digits = load_digits()
images = from_numpy((digits.images / 16).astype("float32")).unsqueeze(1)
labels = from_numpy(digits.target.astype("int64"))
test = torch.arange(len(labels)) % 5 == 0
images, labels, test_images, test_labels = images[~test], labels[~test], images[test], labels[test]

model = nn.Sequential(
    nn.Conv2d(1, 8, 3, padding=1), nn.GELU(), nn.AvgPool2d(2),
    nn.Flatten(), nn.Linear(8 * 4 * 4, 32), nn.GELU(), nn.Linear(32, 10),
)  # fmt: skip


def loss_of(parameters, image, label):
    """The loss of one example."""
    scores = functional_call(model, parameters, (image.unsqueeze(0),))
    return F.cross_entropy(scores, label.unsqueeze(0))


each = torch.func.vmap(torch.func.grad_and_value(loss_of), in_dims=(None, 0, 0))
if args.compile:
    each = torch.compile(each)

parameters = {name: p.detach() for name, p in model.named_parameters()}
run = common.Run(args)
run.initial(model)
for _ in run:
    batch = torch.randint(0, len(labels), (args.batch,))
    gradients, losses = each(parameters, images[batch], labels[batch])
    flat = torch.cat([g.flatten(1) for g in gradients.values()], 1)
    cut = (args.clip / flat.norm(dim=1)).clamp(max=1)
    for name, g in gradients.items():
        mean = torch.einsum("b,b...->...", cut, g) / args.batch
        noise = torch.randn(mean.shape) * args.noise * args.clip / args.batch
        parameters[name] = parameters[name] - args.rate * (mean + noise)
    run.loss(losses.mean())

with torch.no_grad():
    right = functional_call(model, parameters, (test_images,)).argmax(1) == test_labels
run.note(accuracy=round(right.float().mean().item(), 4))
run.finish()
