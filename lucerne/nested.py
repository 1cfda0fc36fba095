"""`lucerne.nested`: batches of sequences of different lengths, without padding."""

from __future__ import annotations

from lucerne._src.nested import as_nested_tensor as as_nested_tensor
from lucerne._src.nested import masked_select as masked_select
from lucerne._src.nested import narrow as narrow
from lucerne._src.nested import nested_tensor as nested_tensor
from lucerne._src.nested import nested_tensor_from_jagged as nested_tensor_from_jagged
from lucerne._src.nested import to_padded_tensor as to_padded_tensor
