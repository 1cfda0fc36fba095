"""Every family of ops, imported so that the table is complete."""

from __future__ import annotations

from lucerne.ops import activation as activation
from lucerne.ops import arithmetic as arithmetic
from lucerne.ops import attention as attention
from lucerne.ops import bitwise as bitwise
from lucerne.ops import compare as compare
from lucerne.ops import complexes as complexes
from lucerne.ops import conv as conv
from lucerne.ops import conversions as conversions
from lucerne.ops import convolution as convolution
from lucerne.ops import copies as copies
from lucerne.ops import counting as counting
from lucerne.ops import creation as creation
from lucerne.ops import decompositions as decompositions
from lucerne.ops import dropout as dropout
from lucerne.ops import einsum as einsum
from lucerne.ops import embedding as embedding
from lucerne.ops import fft as fft
from lucerne.ops import index as index
from lucerne.ops import join as join
from lucerne.ops import linalg as linalg
from lucerne.ops import loss as loss
from lucerne.ops import masked as masked
from lucerne.ops import matmul as matmul
from lucerne.ops import move as move
from lucerne.ops import normalization as normalization
from lucerne.ops import norms as norms
from lucerne.ops import patches as patches
from lucerne.ops import pool as pool
from lucerne.ops import random as random
from lucerne.ops import reduce as reduce
from lucerne.ops import resample as resample
from lucerne.ops import rnn as rnn
from lucerne.ops import scan as scan
from lucerne.ops import scatter as scatter
from lucerne.ops import signal as signal
from lucerne.ops import softmax as softmax
from lucerne.ops import sorting as sorting
from lucerne.ops import special as special
from lucerne.ops import statistics as statistics
from lucerne.ops import unary as unary
from lucerne.ops import view as view
