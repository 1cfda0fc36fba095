"""Lazy mode: ops are written down and run together when somebody needs a value.

`pending` writes them down (below autograd, so backward passes and optimizer steps as well), `cuts`
remembers where and why it was cut, `programs` compiles what was written down, once for each
different graph, and `mode` is the switch.
"""
