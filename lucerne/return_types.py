"""`lucerne.return_types`: the tuple types of ops with several named results."""

from __future__ import annotations

from lucerne._src.ir.results import named as _named

_PAIRS = "cummax cummin kthvalue max median min mode nanmedian sort topk"
_FIELDS = {
    **dict.fromkeys(_PAIRS.split(), "values indices"),
    "aminmax": "min max",
    "frexp": "mantissa exponent",
    "geqrf": "a tau",
    "histogram": "hist bin_edges",
    "histogramdd": "hist bin_edges",
    "linalg_cholesky_ex": "L info",
    "linalg_eig": "eigenvalues eigenvectors",
    "linalg_eigh": "eigenvalues eigenvectors",
    "linalg_inv_ex": "inverse info",
    "linalg_ldl_factor": "LD pivots",
    "linalg_ldl_factor_ex": "LD pivots info",
    "linalg_lstsq": "solution residuals rank singular_values",
    "linalg_lu": "P L U",
    "linalg_lu_factor": "LU pivots",
    "linalg_lu_factor_ex": "LU pivots info",
    "linalg_qr": "Q R",
    "linalg_slogdet": "sign logabsdet",
    "linalg_solve_ex": "result info",
    "linalg_svd": "U S Vh",
    "lu_unpack": "P L U",
    "qr": "Q R",
    "slogdet": "sign logabsdet",
    "svd": "U S V",
    "triangular_solve": "solution cloned_coefficient",
}
all_return_types = [_named(name, fields) for name, fields in _FIELDS.items()]
globals().update({kind.__name__: kind for kind in all_return_types})
