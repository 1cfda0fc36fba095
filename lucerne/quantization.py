"""`lucerne.quantization`: weights in 8 and 4 bits, in torchao's spelling."""

from __future__ import annotations

from lucerne._src.quantization.codes import QuantizedWeight as QuantizedWeight
from lucerne._src.quantization.codes import quantize_weight as quantize_weight
from lucerne._src.quantization.configs import Float8WeightOnlyConfig as Float8WeightOnlyConfig
from lucerne._src.quantization.configs import Int4WeightOnlyConfig as Int4WeightOnlyConfig
from lucerne._src.quantization.configs import (
    Int8DynamicActivationInt4WeightConfig as Int8DynamicActivationInt4WeightConfig,
)
from lucerne._src.quantization.configs import (
    Int8DynamicActivationInt8WeightConfig as Int8DynamicActivationInt8WeightConfig,
)
from lucerne._src.quantization.configs import Int8WeightOnlyConfig as Int8WeightOnlyConfig
from lucerne._src.quantization.configs import QuantizationConfig as QuantizationConfig
from lucerne._src.quantization.gguf import GGUFFile as GGUFFile
from lucerne._src.quantization.gguf import load_gguf as load_gguf
from lucerne._src.quantization.linear import QuantizedLinear as QuantizedLinear
from lucerne._src.quantization.packed_files import from_awq as from_awq
from lucerne._src.quantization.packed_files import from_gptq as from_gptq
from lucerne._src.quantization.packed_files import load_packed_ as load_packed_
from lucerne._src.quantization.qat import FakeQuantizedLinear as FakeQuantizedLinear
from lucerne._src.quantization.qat import QATConfig as QATConfig
from lucerne._src.quantization.quality import LayerQuality as LayerQuality
from lucerne._src.quantization.quality import QualityReport as QualityReport
from lucerne._src.quantization.quantize import quantize_ as quantize_
from lucerne._src.quantization.quantize import quantize_dynamic as quantize_dynamic
