"""Programs as ONNX files, and ONNX files as modules (`lucerne.onnx` is the window)."""
