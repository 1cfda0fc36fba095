"""`lucerne.onnx`: programs as ONNX files (`export`), and ONNX files as modules (`load`)."""

from lucerne.export.onnx.door import export as export
from lucerne.export.onnx.errors import OnnxExporterError as OnnxExporterError
from lucerne.export.onnx.program import ONNXProgram as ONNXProgram
from lucerne.export.onnx.reading.module import OnnxModule as OnnxModule
from lucerne.export.onnx.reading.module import load as load
