"""`lucerne.backends.formulas`: primitives as kernels that any device can run."""

from __future__ import annotations

from lucerne._src.backends.formulas import Frame as Frame
from lucerne._src.backends.formulas import Groups as Groups
from lucerne._src.backends.formulas import Launch as Launch
from lucerne._src.backends.formulas import Writer as Writer
from lucerne._src.backends.formulas import executable as executable
from lucerne._src.backends.formulas import formula as formula
from lucerne._src.backends.formulas import has as has
