"""L9: files. Checkpoints in torch's format that can't run code, safetensors, atomic writes.

Users come in through `lucerne.save`, `lucerne.load`, `lucerne.serialization`, `lucerne.run_state`
and `lucerne.io.safetensors`.
"""

from __future__ import annotations

from lucerne._src.io import safetensors as safetensors
