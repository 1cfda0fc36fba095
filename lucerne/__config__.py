"""`lucerne.__config__`: what it is made of and how many threads it uses, as text."""

from __future__ import annotations

from lucerne._src.environment import parallel_info as parallel_info
from lucerne._src.environment import show as show
