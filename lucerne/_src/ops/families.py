"""Every family of ops, imported so that the table is complete: found by walking the folder."""

from __future__ import annotations

import pkgutil

from lucerne._src import ops
from lucerne._src.base.process import forks

for _found in pkgutil.walk_packages(ops.__path__, f"{ops.__name__}."):
    if not _found.ispkg and _found.name != __name__:
        forks.import_module(_found.name)
