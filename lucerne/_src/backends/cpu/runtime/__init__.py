"""What compiled kernels stand on: loading of code, threads, memory.

Importing the package enters the runtime's own functions into the table of symbols.
"""

from lucerne._src.backends.cpu.runtime import memory as memory
from lucerne._src.backends.cpu.runtime import pool as pool
