"""The eager path: a call becomes a key, the key finds a plan, the plan runs (`run`).

`native_bridge` is what an engine's machine code and this layer tell each other; `specialize`
notes what a call did, so that it can be repeated; `inplace` writes into tensors that exist.
"""
