"""`lucerne conformance --device NAME`: how much of the op table a device gets right, without torch.

Two sources of truth, both in the package: calls frozen with torch's own answers (`data/`), and the oracle
of each table entry (a NumPy function beside the op). The score is the share of (op, dtype) pairs whose
every case agrees.
"""

from lucerne.conformance.run import Outcome as Outcome
from lucerne.conformance.run import run as run
