"""NumPy rules of the structural primitives, one file per family; importing them fills the table."""

from __future__ import annotations

from lucerne._src.backends.reference.rules import conv as conv
from lucerne._src.backends.reference.rules import counted as counted
from lucerne._src.backends.reference.rules import fft as fft
from lucerne._src.backends.reference.rules import index as index
from lucerne._src.backends.reference.rules import join as join
from lucerne._src.backends.reference.rules import linalg as linalg
from lucerne._src.backends.reference.rules import matmul as matmul
from lucerne._src.backends.reference.rules import move as move
from lucerne._src.backends.reference.rules import pool as pool
from lucerne._src.backends.reference.rules import random as random
from lucerne._src.backends.reference.rules import scan as scan
from lucerne._src.backends.reference.rules import sorting as sorting
from lucerne._src.backends.reference.rules import tile as tile
