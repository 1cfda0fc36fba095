"""One call saves a training run, one call restores it; see `RunState`."""

from __future__ import annotations

from lucerne._src.io.state import RunState as RunState
from lucerne._src.io.state import latest as latest
