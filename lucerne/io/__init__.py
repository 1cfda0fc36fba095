"""`lucerne.io`: files of tensors that other libraries read."""

from __future__ import annotations

from lucerne.io import safetensors as safetensors
