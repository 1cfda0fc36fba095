"""`lucerne.random`: seeds and states of the default generator."""

from __future__ import annotations

from typing import Any

from lucerne._src.tensor.random.api import default_generator as default_generator
from lucerne._src.tensor.random.api import fork_rng as fork_rng
from lucerne._src.tensor.random.api import get_rng_state as get_rng_state
from lucerne._src.tensor.random.api import initial_seed as initial_seed
from lucerne._src.tensor.random.api import manual_seed as manual_seed
from lucerne._src.tensor.random.api import seed as seed
from lucerne._src.tensor.random.api import set_rng_state as set_rng_state


def thread_safe_generator() -> Any:
    """The generator a worker thread must use; None where the default one is safe.

    It always is: every draw holds the generator's lock, and loader workers are processes.
    """
    return None
