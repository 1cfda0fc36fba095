"""Element-wise kernels of one op: what is computed (`recipe`) apart from how loops run over it.

`space` finds the loops for the strides at hand, `flat` and `nest` write them, `access` moves
lanes to and from memory, `plan` makes a kernel of all that. `pointwise` has the recipes of ops,
`copying` and `batch` those that move data.
"""
