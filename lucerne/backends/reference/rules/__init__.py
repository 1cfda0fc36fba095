"""NumPy rules of the structural primitives, one file per family; importing them fills the table."""

from __future__ import annotations

from lucerne.backends.reference.rules import conv as conv
from lucerne.backends.reference.rules import counted as counted
from lucerne.backends.reference.rules import fft as fft
from lucerne.backends.reference.rules import index as index
from lucerne.backends.reference.rules import join as join
from lucerne.backends.reference.rules import linalg as linalg
from lucerne.backends.reference.rules import matmul as matmul
from lucerne.backends.reference.rules import move as move
from lucerne.backends.reference.rules import pool as pool
from lucerne.backends.reference.rules import random as random
from lucerne.backends.reference.rules import scan as scan
from lucerne.backends.reference.rules import sorting as sorting
from lucerne.backends.reference.rules import tile as tile
