"""What a tensor says about itself besides its values: every attribute that a function can read
without an op, of a tensor that stands in a variable and of one that is exchanged or changed."""

from __future__ import annotations

import re
from functools import partial

from tests.effects.kinds import kind

metadata = partial(kind, "metadata")
_LEAF = "S = torch.ones(1).requires_grad_()"
_ANY = "S = torch.ones(2)"


def _exchanged(name: str, setup: str, read: str, other: str, back: str) -> None:
    """`S` is another tensor after the first change, one as at first after the second."""
    change = f"if k == 1.0:\n    S = {back}\nelse:\n    S = {other}"
    metadata(name, setup, read, change=change, rebinds=True, state=f"told({read})")
    inside = re.sub(r"\bS\b", "S[0]", read)
    metadata(
        f"{name}, in a list",
        f"{setup}\nS = [S]",
        inside,
        change=re.sub(r"\bS\b", "S[0]", change),
        state=f"told({inside})",
    )


for _name, _setup, _read, _other, _back in (
    ("is_leaf", _LEAF, "2.0 if S.is_leaf else 3.0",
     "torch.ones(1).requires_grad_() * 1", "torch.ones(1).requires_grad_()"),
    ("is_leaf without gradients", _ANY, "2.0 if S.is_leaf else 3.0",
     "torch.ones(2).requires_grad_() * 1", "torch.ones(2)"),
    ("grad_fn is None", _LEAF, "2.0 if S.grad_fn is None else 3.0",
     "torch.ones(1).requires_grad_() * 1", "torch.ones(1).requires_grad_()"),
    ("name of grad_fn", "S = torch.ones(1).requires_grad_() * 1", "len(S.grad_fn.name())",
     "torch.ones(1).requires_grad_().sin()", "torch.ones(1).requires_grad_() * 1"),
    ("next_functions", "S = torch.ones(1).requires_grad_() * 1",
     "float(len(S.grad_fn.next_functions))",
     "torch.cat([torch.ones(1).requires_grad_()] * 3)", "torch.ones(1).requires_grad_() * 1"),
    ("requires_grad read", _LEAF, "2.0 if S.requires_grad else 3.0",
     "torch.ones(1)", "torch.ones(1).requires_grad_()"),
    ("output_nr", _ANY, "float(S.output_nr)",
     "torch.ones(4).requires_grad_().chunk(2)[1]", "torch.ones(2)"),
    ("retains_grad", _LEAF, "2.0 if S.retains_grad else 3.0",
     "kept(torch.ones(1).requires_grad_() * 1)", "torch.ones(1).requires_grad_() * 1"),
    ("is_contiguous", "S = torch.ones(2, 3)", "2.0 if S.is_contiguous() else 3.0",
     "torch.ones(3, 2).t()", "torch.ones(2, 3)"),
    ("storage_offset", _ANY, "float(S.storage_offset())", "torch.ones(5)[3:]", "torch.ones(2)"),
    ("size of the storage", _ANY, "float(S.untyped_storage().nbytes())",
     "torch.ones(5)[3:]", "torch.ones(2)"),
    ("_base", _ANY, "2.0 if S._base is None else 3.0", "torch.ones(5)[:2]", "torch.ones(2)"),
    ("_is_view", _ANY, "2.0 if S._is_view() else 3.0", "torch.ones(5)[:2]", "torch.ones(2)"),
    ("is_conj", "S = torch.ones(2, dtype=torch.complex64)", "2.0 if S.is_conj() else 3.0",
     "torch.ones(2, dtype=torch.complex64).conj()", "torch.ones(2, dtype=torch.complex64)"),
    ("is_neg", _ANY, "2.0 if S.is_neg() else 3.0",
     "(torch.ones(2, dtype=torch.complex64) * 1j).conj().imag", "torch.ones(2)"),
    ("is_inference", _ANY, "2.0 if S.is_inference() else 3.0", "inferred()", "torch.ones(2)"),
    ("type of a tensor", _ANY, "2.0 if isinstance(S, nn.Parameter) else 3.0",
     "nn.Parameter(torch.ones(2))", "torch.ones(2)"),
    ("exact type", _ANY, "float(len(type(S).__name__))",
     "nn.Parameter(torch.ones(2))", "torch.ones(2)"),
    ("dtype read", _ANY, "2.0 if S.dtype == torch.float32 else 3.0",
     "torch.ones(2).double()", "torch.ones(2)"),
    ("is_floating_point", _ANY, "2.0 if S.is_floating_point() else 3.0",
     "torch.ones(2).long()", "torch.ones(2)"),
    ("element_size", _ANY, "float(S.element_size() + S.itemsize + S.nbytes)",
     "torch.ones(2).double()", "torch.ones(2)"),
    ("sizes", _ANY, "float(S.numel() + S.ndim + S.dim() + len(S) + S.shape[0] + S.nelement())",
     "torch.ones(3, 2)", "torch.ones(2)"),
    ("strides read", "S = torch.ones(2, 3)", "float(S.stride()[0] + S.stride(1))",
     "torch.ones(3, 2).t()", "torch.ones(2, 3)"),
    ("is_sparse", _ANY, "2.0 if S.layout == torch.strided else 3.0",
     "torch.eye(2).to_sparse()", "torch.ones(2)"),
    ("is_same_size", _ANY, "2.0 if S.is_same_size(torch.ones(2)) else 3.0",
     "torch.ones(3)", "torch.ones(2)"),
    ("data_ptr", _ANY, "2.0 if S.data_ptr() == T.data_ptr() else 3.0", "T[:]", "torch.ones(2)"),
    ("is_set_to", _ANY, "2.0 if S.is_set_to(T) else 3.0", "T[:]", "torch.ones(2)"),
    ("hash", _ANY, "2.0 if hash(S) == hash(T) else 3.0", "T", "torch.ones(2)"),
    ("id", _ANY, "2.0 if id(S) == id(T) else 3.0", "T", "torch.ones(2)"),
    ("in a set", _ANY, "2.0 if S in {T} else 3.0", "T", "torch.ones(2)"),
    ("key of a dict", _ANY, "{T: 2.0}.get(S, 3.0)", "T", "torch.ones(2)"),
    ("text of a tensor", _ANY, "float(len(repr(S)))", "torch.ones(2).double()", "torch.ones(2)"),
    ("hung on it", _ANY, "getattr(S, 'tag', 3.0)", "tagged(torch.ones(2))", "torch.ones(2)"),
    ("its dict", _ANY, "float(len(S.__dict__))", "tagged(torch.ones(2))", "torch.ones(2)"),
    ("is_shared", _ANY, "2.0 if S.is_shared() else 3.0",
     "torch.ones(2).share_memory_()", "torch.ones(2)"),
    ("is None", _ANY, "3.0 if S is None else 2.0", "None", "torch.ones(2)"),
    ("deepcopy protocol", _LEAF, "2.0 if copy.copy(S).is_leaf else 3.0",
     "torch.ones(1).requires_grad_() * 1", "torch.ones(1).requires_grad_()"),
):  # fmt: skip
    _helpers = (
        "T = torch.ones(2)\ndef kept(t):\n    t.retain_grad()\n    return t\n"
        "def hooked(t):\n    t.register_hook(lambda g: g)\n    return t\n"
        "def tagged(t):\n    t.tag = 5.0\n    return t\n"
        "def inferred():\n    with torch.inference_mode():\n        return torch.ones(2)\n"
    )
    _exchanged(_name, _helpers + _setup, _read, _other, _back)

_INNER_CHANGES = (
    ("is_leaf", "S.is_leaf", "S.requires_grad_()", "S.detach_()"),
    ("is_leaf, written", "S.is_leaf", "if S.is_leaf: S.mul_(T)", "S.detach_()"),
    ("grad_fn, written", "S.grad_fn is None", "if S.is_leaf: S.mul_(T)", "S.detach_()"),
    ("requires_grad, written", "S.requires_grad", "if S.is_leaf: S.mul_(T)", "S.detach_()"),
    ("retains_grad", "U.retains_grad", "U.retain_grad()", "None"),
    ("grad is None", "T.grad is None", "T.grad = torch.ones(1)", "T.grad = None"),
    ("requires_grad of the gradient", "T.grad is not None and T.grad.requires_grad",
     "T.grad = torch.ones(1).requires_grad_()", "T.grad = torch.ones(1)"),
    ("_version", "S._version > 0", "S.add_(1)", "None"),
    ("moved by data", "R.is_contiguous()", "R.data = R.data.t()",
     "R.data = R.data.contiguous().view(2, 3)"),
    ("resized in place", "R.numel() > 6", "R.resize_(4, 3)", "R.resize_(2, 3)"),
    ("storage shared", "S.is_shared()", "S.share_memory_()", "None"),
    ("class of a tensor", "type(S) is nn.Parameter", "S.__class__ = nn.Parameter",
     "S.__class__ = torch.Tensor"),
    ("attribute hung", "hasattr(S, 'tag')", "S.tag = 1", "del S.tag"),
)  # fmt: skip
for _name, _read, _there, _gone in _INNER_CHANGES:
    _there, _gone = (
        "\n".join(f"    {line}" for line in text.splitlines()) for text in (_there, _gone)
    )
    metadata(
        f"{_name}, of one and the same",
        "T = torch.ones(1).requires_grad_()\nU = T * 1\nR = torch.ones(2, 3)\nS = torch.ones(1)",
        f"(2.0 if {_read} else 3.0)",
        change=f"if k == 1.0:\n{_gone}\nelse:\n{_there}",
        state=f"{_read}",
    )
