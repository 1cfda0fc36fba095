"""A Python interpreter in Python: runs a user's function from its code object, with hooks.

`Machine(hooks).run(frames)` goes on until the function returns or a hook says stop; the frames that
a stop leaves are plain data and can be written down, rebuilt with other values and run further.
docs/inside/bytecode.md tells how it works and how to add a version of Python.
"""

from lucerne._src.capture.bytecode import tables as tables
from lucerne._src.capture.bytecode.frame import UNSET as UNSET
from lucerne._src.capture.bytecode.frame import Link as Link
from lucerne._src.capture.bytecode.frame import Listing as Listing
from lucerne._src.capture.bytecode.frame import PythonFrame as PythonFrame
from lucerne._src.capture.bytecode.frame import rebuilt as rebuilt
from lucerne._src.capture.bytecode.generators import PythonGenerator as PythonGenerator
from lucerne._src.capture.bytecode.hooks import INLINE as INLINE
from lucerne._src.capture.bytecode.hooks import NATIVE as NATIVE
from lucerne._src.capture.bytecode.hooks import NOTHING as NOTHING
from lucerne._src.capture.bytecode.hooks import Access as Access
from lucerne._src.capture.bytecode.hooks import Decision as Decision
from lucerne._src.capture.bytecode.hooks import Hooks as Hooks
from lucerne._src.capture.bytecode.hooks import Plain as Plain
from lucerne._src.capture.bytecode.hooks import Stop as Stop
from lucerne._src.capture.bytecode.hooks import decision_for as decision_for
from lucerne._src.capture.bytecode.machine import Finished as Finished
from lucerne._src.capture.bytecode.machine import Machine as Machine
from lucerne._src.capture.bytecode.machine import Stopped as Stopped
from lucerne._src.capture.bytecode.registry import current_table as current_table
from lucerne._src.capture.bytecode.registry import using as using
from lucerne._src.capture.bytecode.registry import (
    with_instructions_removed as with_instructions_removed,
)
from lucerne._src.capture.bytecode.targets import python_function as python_function
