"""`lucerne.random`: seeds and states of the default generator."""

from lucerne.tensor.random_api import default_generator as default_generator
from lucerne.tensor.random_api import fork_rng as fork_rng
from lucerne.tensor.random_api import get_rng_state as get_rng_state
from lucerne.tensor.random_api import initial_seed as initial_seed
from lucerne.tensor.random_api import manual_seed as manual_seed
from lucerne.tensor.random_api import seed as seed
from lucerne.tensor.random_api import set_rng_state as set_rng_state
