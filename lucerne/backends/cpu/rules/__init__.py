"""One module per family of primitives; importing this package fills the table."""

from lucerne.backends.cpu.rules import conv as conv
from lucerne.backends.cpu.rules import attention as attention
from lucerne.backends.cpu.rules import index as index
from lucerne.backends.cpu.rules import matmul as matmul
from lucerne.backends.cpu.rules import join as join
from lucerne.backends.cpu.rules import move as move
from lucerne.backends.cpu.rules import pointwise as pointwise
from lucerne.backends.cpu.rules import sorting as sorting
from lucerne.backends.cpu.rules import reduce as reduce
from lucerne.backends.cpu.rules import random as random
from lucerne.backends.cpu.rules import scan as scan
from lucerne.backends.cpu.rules import rnn as rnn
from lucerne.backends.cpu.rules import pool as pool
from lucerne.backends.cpu.rules import classes as classes
