"""`lucerne conformance --device NAME`: how much of the op table a device gets right, without torch.

Two sources of truth, both in the package: calls frozen with torch's own answers (`frozen.py`,
`data/`), and the oracle of each table entry, a NumPy function beside the op (`oracle.py`). The
score is the share of (op, dtype) pairs whose every case agrees.
"""

from lucerne.conformance.cases import Case as Case
from lucerne.conformance.frozen import DataError as DataError
from lucerne.conformance.frozen import frozen_cases as frozen_cases
from lucerne.conformance.oracle import oracle_cases as oracle_cases
from lucerne.conformance.run import Outcome as Outcome
from lucerne.conformance.run import run as run
