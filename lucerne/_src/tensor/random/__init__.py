"""Random numbers at NumPy level: PyTorch's CPU stream, and a counter-based stream for workers."""

from lucerne._src.tensor.random.generator import Generator as Generator
from lucerne._src.tensor.random.generator import SeedRangeError as SeedRangeError
from lucerne._src.tensor.random.generator import default_generator as default_generator
from lucerne._src.tensor.random.methods import DrawMethods as DrawMethods
from lucerne._src.tensor.random.mt19937 import DEFAULT_SEED as DEFAULT_SEED
from lucerne._src.tensor.random.mt19937 import STATE_SIZE as STATE_SIZE
from lucerne._src.tensor.random.mt19937 import Mersenne as Mersenne
from lucerne._src.tensor.random.philox import PhiloxGenerator as PhiloxGenerator
from lucerne._src.tensor.random.philox import philox_blocks as philox_blocks
