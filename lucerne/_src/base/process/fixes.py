"""What usually mends an error that the package raises, by its text.

The texts are PyTorch's and stay as they are; what to try is a line of the note below them. There is
advice only where the text leaves no doubt of what is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable

Advice = str | Callable[..., str]
"""A format of the groups of the pattern, or what makes a text of them."""


def _other_dtype(first: str, second: str) -> str:
    return (
        f"x.to(weight.dtype), from {first.lower()} to {second.lower()}, or a model of the other "
        "dtype: model.to(x.dtype)"
    )


def _channels(shape: str, expected: str, got: str) -> str:
    sizes = shape.split(", ")
    if sizes[-1] == expected and len(sizes) == 4:
        return "x.permute(0, 3, 1, 2): channels come before height and width"
    return f"in_channels={got} in this layer, or out_channels={expected} in the one before"


_FIXES: list[tuple[str, Advice]] = [
    (
        r"mat1 and mat2 shapes cannot be multiplied \(\d+x(\d+) and (\d+)x\d+\)",
        "a layer with in_features={0} (a matrix with {0} rows) instead of {1}, to transpose one, "
        "or to reshape what comes in to (..., {1})",
    ),
    (r"mat1 and mat2 must have the same dtype, but got (\w+) and (\w+)", _other_dtype),
    (
        r"is not on the expected device|to be on the same device",
        "x.to(device) and model.to(device)",
    ),
    (
        r"The size of tensor a \(\d+\) must match the size of tensor b \(\d+\) at non-singleton "
        r"dimension (\d+)",
        "making dimension {0} equal in both, or 1 in one of them (transpose, unsqueeze, a slice)",
    ),
    (
        r"expected target dtype to be Long or Byte",
        "target.long() for numbers of classes, or probabilities in the shape of the input",
    ),
    (
        r"0D or 1D target tensor expected, multi-target not supported",
        "target.squeeze(1) for numbers of classes, or probabilities in the shape of the input",
    ),
    (
        r"Given groups=1, weight of size .*, expected input\[(.*)\] to have (\d+) channels, but "
        r"got (\d+) channels",
        _channels,
    ),
    (r"running_mean should contain (\d+) elements not \d+", "num_features={0} in this layer"),
    (
        r"Expected more than 1 value per channel when training",
        "a larger batch (drop_last=True in the DataLoader), or model.eval()",
    ),
    (
        r"index out of range in self",
        "indices from 0 to one less than the rows of the table: look at x.min() and x.max()",
    ),
    (r"Expected tensor for argument #1 'indices' to have one of", "x.long()"),
    (
        r"a leaf Variable that requires grad is being used in an in-place operation",
        "with torch.no_grad(): around it, or a new tensor (w = w + x)",
    ),
    (
        r"element 0 of tensors does not require grad and does not have a grad_fn",
        "a loss that is computed from parameters, outside of no_grad() and without detach() or "
        "item() on the way",
    ),
    (
        r"grad can be implicitly created only for scalar outputs",
        "loss.mean().backward(), or backward(gradient) with a tensor of the same shape",
    ),
    (
        r"all elements of input should be between 0 and 1",
        "torch.sigmoid(x) before it, or binary_cross_entropy_with_logits, which takes any number",
    ),
    (r"could not infer output dtype. Input dtype must be either a floating point", "x.float()"),
    (
        r"stack expects each tensor to be equal size",
        "nn.utils.rnn.pad_sequence; in a DataLoader, a collate_fn that calls it",
    ),
    (
        r"default_collate: batch must contain .* found <class 'NoneType'>|"
        r"expected Tensor as element \d+ in argument 0, but got NoneType",
        "a dataset with a sample for each index, or a collate_fn that leaves None out",
    ),
    (
        r"Tensors must have same number of dimensions: got \d+ and \d+",
        "unsqueeze on the one with fewer dimensions",
    ),
    (
        r"Boolean value of Tensor with more than one value is ambiguous",
        ".any() or .all() of it, or torch.where to choose element by element",
    ),
    (
        r"only one element tensors can be converted|elements cannot be converted to Scalar",
        "x.mean() or x.sum() before it, or x.tolist() for all of them",
    ),
    (
        r"^expected sequence of length \d+ at dim \d+",
        "rows of one length: nn.utils.rnn.pad_sequence",
    ),
    (
        r"returned an incorrect number of gradients \(expected (\d+), got \d+\)",
        "{0} values from backward, one for each argument of forward: None where there is none",
    ),
    (
        r"no backend serves device 'cuda",
        "device = 'cuda' if torch.cuda.is_available() else 'cpu'",
    ),
    (
        r"optimizer got an empty parameter list",
        "nn.ModuleList for layers in a list: those in a plain list are not found",
    ),
    (r"can't optimize a non-leaf Tensor", "x.detach().requires_grad_(), or nn.Parameter(x)"),
    (
        r'^Module \[Module(?:List|Dict)\] is missing the required "forward" function',
        "calling the modules in it: it only holds them; nn.Sequential calls one after the other",
    ),
]
_COMPILED = [(re.compile(pattern, re.DOTALL), advice) for pattern, advice in _FIXES]


def fix_for(text: str) -> str:
    """What to try; "": nothing is known.

    >>> fix_for("grad can be implicitly created only for scalar outputs")
    'loss.mean().backward(), or backward(gradient) with a tensor of the same shape'
    """
    for pattern, advice in _COMPILED:
        found = pattern.search(text)
        if found is not None:
            groups = found.groups()
            return advice.format(*groups) if isinstance(advice, str) else advice(*groups)
    return ""
