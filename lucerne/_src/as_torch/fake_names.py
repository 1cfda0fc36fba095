"""`torch._subclasses`: one class for each name, whichever module shows it."""

from __future__ import annotations

from lucerne._src.as_torch.kinds import classes

_WHY = "Lucerne traces with tensors of its own kind: use the device 'meta' for shapes alone."
_ROWS = classes("FakeTensor FakeTensorMode")
FakeTensor, FakeTensorMode = (
    entry.make("torch._subclasses.fake_tensor", name, _WHY) for name, entry in _ROWS.items()
)
