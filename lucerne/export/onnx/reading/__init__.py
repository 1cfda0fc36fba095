"""ONNX files as modules: the strict reader, and what each ONNX operator is in our ops."""
