"""Train several networks at once, and let them vote.

The weights of all of them are stacked; `vmap` runs one network's step for every slice.

python examples/ensembling/train.py --steps 200 --models 8
"""

import copy
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
import common

try:
    from sklearn.datasets import load_digits
except ImportError:
    sys.exit("this example reads scikit-learn's digits: pip install scikit-learn")

args = common.options(
    "an ensemble of networks for handwritten digits", steps=200, batch=64, rate=0.1, models=8
)
torch = common.framework(args)
nn, F, func = torch.nn, torch.nn.functional, torch.func

digits = load_digits()
images = torch.from_numpy((digits.images / 16).astype("float32")).flatten(1)
labels = torch.from_numpy(digits.target.astype("int64"))
test = torch.arange(len(labels)) % 5 == 0
images, labels, test_images, test_labels = images[~test], labels[~test], images[test], labels[test]


def network():
    return nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Dropout(0.1), nn.Linear(32, 10))


models = nn.ModuleList(network() for _ in range(args.models))
parameters, buffers = func.stack_module_state(models)
parameters = {name: p.detach() for name, p in parameters.items()}
shell = copy.deepcopy(models[0]).to("meta")  # how to compute; the weights are arguments


def loss_of(parameters, buffers, images, labels):
    """The loss of one network."""
    scores = func.functional_call(shell, (parameters, buffers), (images,))
    return F.cross_entropy(scores, labels)


# Every network has its own weights, its own part of the data and its own dropout.
step = func.vmap(func.grad_and_value(loss_of), randomness="different")
if args.compile:
    step = torch.compile(step)

run = common.Run(args)
run.initial(models)
for _ in run:
    batch = torch.randint(0, len(labels), (args.models, args.batch))
    gradients, losses = step(parameters, buffers, images[batch], labels[batch])
    parameters = {name: p - args.rate * gradients[name] for name, p in parameters.items()}
    run.loss(losses.mean())


def scores_of(parameters, buffers):
    return func.functional_call(shell.eval(), (parameters, buffers), (test_images,))


scores = func.vmap(scores_of)(parameters, buffers)
alone = (scores.argmax(2) == test_labels).float().mean(1)
together = (scores.softmax(2).mean(0).argmax(1) == test_labels).float().mean()
run.note(best_alone=round(alone.max().item(), 4), together=round(together.item(), 4))
run.finish()
