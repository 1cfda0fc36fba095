"""One table of instructions for each version of Python; importing this package enters them all."""

from lucerne._src.capture.bytecode.tables.py311 import PY311 as PY311
from lucerne._src.capture.bytecode.tables.py312 import PY312 as PY312
from lucerne._src.capture.bytecode.tables.py313 import PY313 as PY313
from lucerne._src.capture.bytecode.tables.py314 import PY314 as PY314
from lucerne._src.capture.bytecode.tables.py315 import PY315 as PY315
