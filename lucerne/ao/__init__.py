"""`torch.ao`: its quantization in one name; the rest is `lucerne.quantization`."""

from __future__ import annotations

from lucerne.ao import quantization as quantization
