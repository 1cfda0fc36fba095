"""Random numbers at NumPy level: PyTorch's CPU stream, and a counter-based stream for workers."""

from lucerne.tensor.random.generator import Generator as Generator
from lucerne.tensor.random.generator import SeedRangeError as SeedRangeError
from lucerne.tensor.random.generator import default_generator as default_generator
from lucerne.tensor.random.methods import DrawMethods as DrawMethods
from lucerne.tensor.random.mt19937 import DEFAULT_SEED as DEFAULT_SEED
from lucerne.tensor.random.mt19937 import STATE_SIZE as STATE_SIZE
from lucerne.tensor.random.mt19937 import Mersenne as Mersenne
from lucerne.tensor.random.philox import PhiloxGenerator as PhiloxGenerator
from lucerne.tensor.random.philox import philox_blocks as philox_blocks
