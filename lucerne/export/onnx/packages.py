"""The packages of the extra `onnx`, asked for when they are first needed."""

from __future__ import annotations

from typing import Any

_HOW = "pip install 'lucerne[onnx]'"


def onnx_package() -> Any:
    """The package `onnx`, which knows the file format."""
    try:
        import onnx
        import onnx.helper
        import onnx.numpy_helper
    except ImportError as error:
        raise ImportError(
            f"lucerne.onnx needs the package onnx, which is not installed: {_HOW}"
        ) from error
    return onnx


def runtime() -> Any:
    """onnxruntime; None: it is not installed."""
    try:
        import onnxruntime
    except ImportError:
        return None
    return onnxruntime
