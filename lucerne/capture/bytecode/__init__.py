"""A Python interpreter in Python: runs a user's function from its code object, with hooks.

`Machine(hooks).run(frames)` goes on until the function returns or a hook says stop; the frames that
a stop leaves are plain data and can be written down, rebuilt with other values and run further.
docs/inside/bytecode.md tells how it works and how to add a version of Python.
"""

from lucerne.capture.bytecode import tables as tables
from lucerne.capture.bytecode.frame import UNSET as UNSET
from lucerne.capture.bytecode.frame import Frame as Frame
from lucerne.capture.bytecode.frame import Link as Link
from lucerne.capture.bytecode.frame import Listing as Listing
from lucerne.capture.bytecode.frame import rebuilt as rebuilt
from lucerne.capture.bytecode.generators import Generator as Generator
from lucerne.capture.bytecode.hooks import INLINE as INLINE
from lucerne.capture.bytecode.hooks import NATIVE as NATIVE
from lucerne.capture.bytecode.hooks import NOTHING as NOTHING
from lucerne.capture.bytecode.hooks import Access as Access
from lucerne.capture.bytecode.hooks import Decision as Decision
from lucerne.capture.bytecode.hooks import Hooks as Hooks
from lucerne.capture.bytecode.hooks import Plain as Plain
from lucerne.capture.bytecode.hooks import Stop as Stop
from lucerne.capture.bytecode.hooks import decision_for as decision_for
from lucerne.capture.bytecode.machine import Finished as Finished
from lucerne.capture.bytecode.machine import Machine as Machine
from lucerne.capture.bytecode.machine import Stopped as Stopped
from lucerne.capture.bytecode.registry import current_table as current_table
from lucerne.capture.bytecode.registry import using as using
from lucerne.capture.bytecode.registry import (
    with_instructions_removed as with_instructions_removed,
)
from lucerne.capture.bytecode.targets import python_function as python_function
