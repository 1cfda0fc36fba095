"""Whole programs: like a family of rules, loaded when the first one is assembled."""

from lucerne._src.backends.cpu.program.assemble import assemble as assemble
from lucerne._src.backends.cpu.program.sized import sized as sized
