"""`torch.ao.quantization`: the front that works, over `lucerne.quantization`."""

from __future__ import annotations

from lucerne._src.quantization.quantize import quantize_ as quantize_
from lucerne._src.quantization.quantize import quantize_dynamic as quantize_dynamic
