"""`lucerne.sparse`: functions of sparse tensors."""

from __future__ import annotations

from lucerne._src.sparse import SparseSemiStructuredTensor as SparseSemiStructuredTensor
from lucerne._src.sparse import (
    SparseSemiStructuredTensorCUSPARSELT as SparseSemiStructuredTensorCUSPARSELT,
)
from lucerne._src.sparse import (
    SparseSemiStructuredTensorCUTLASS as SparseSemiStructuredTensorCUTLASS,
)
from lucerne._src.sparse import addmm as addmm
from lucerne._src.sparse import as_sparse_gradcheck as as_sparse_gradcheck
from lucerne._src.sparse import check_sparse_tensor_invariants as check_sparse_tensor_invariants
from lucerne._src.sparse import log_softmax as log_softmax
from lucerne._src.sparse import mm as mm
from lucerne._src.sparse import sampled_addmm as sampled_addmm
from lucerne._src.sparse import softmax as softmax
from lucerne._src.sparse import spdiags as spdiags
from lucerne._src.sparse import sum as sum
from lucerne._src.sparse import to_sparse_semi_structured as to_sparse_semi_structured
from lucerne._src.tensor.sparse.typed import BFloat16Tensor as BFloat16Tensor
from lucerne._src.tensor.sparse.typed import ByteTensor as ByteTensor
from lucerne._src.tensor.sparse.typed import CharTensor as CharTensor
from lucerne._src.tensor.sparse.typed import DoubleTensor as DoubleTensor
from lucerne._src.tensor.sparse.typed import FloatTensor as FloatTensor
from lucerne._src.tensor.sparse.typed import HalfTensor as HalfTensor
from lucerne._src.tensor.sparse.typed import IntTensor as IntTensor
from lucerne._src.tensor.sparse.typed import LongTensor as LongTensor
from lucerne._src.tensor.sparse.typed import ShortTensor as ShortTensor
