"""The machine's limits: like a family of rules, loaded when somebody asks for them."""

from lucerne._src.backends.cpu.limits import limits as limits
