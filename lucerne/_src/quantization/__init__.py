"""Small weights: codes, modules, files and the report on what they cost.

`codes.py` rounds, `linear.py` is the module, `configs.py` and `quantize.py` are torchao's spelling,
`qat.py` trains with rounding, `quality.py` and `page.py` report, `gguf*.py` and `packed_files.py`
read files of others. The product itself is one op: `_src/ops/linalg/quantized.py`.
"""
