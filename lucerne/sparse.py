"""`lucerne.sparse`: functions of sparse tensors."""

from __future__ import annotations

from lucerne.tensor.sparse_math import addmm as addmm
from lucerne.tensor.sparse_math import mm as mm
from lucerne.tensor.sparse_math import sampled_addmm as sampled_addmm
from lucerne.tensor.sparse_math import sum as sum
