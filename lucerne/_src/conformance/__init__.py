"""`lucerne conformance --device NAME`: how much of the op table a device gets right, without torch.

Two sources of truth, both in the package: calls frozen with torch's own answers (`frozen.py`,
`data/`), and the oracle of each table entry, a NumPy function beside the op (`oracle.py`). The
score is the share of (op, dtype) pairs whose every case agrees.
"""

from lucerne._src.conformance.cases import Case as Case
from lucerne._src.conformance.frozen import DataError as DataError
from lucerne._src.conformance.frozen import frozen_cases as frozen_cases
from lucerne._src.conformance.oracle import oracle_cases as oracle_cases
from lucerne._src.conformance.run import Outcome as Outcome
from lucerne._src.conformance.run import run as run
