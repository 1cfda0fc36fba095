"""`python -m tools.instructions`: whether the tables of capture fit the Python that runs this.

`--against python3.15`: also what came, went or changed since that one. It is where the work for a
new version of Python begins: what is listed needs a rule in a table of its own
(`lucerne/_src/capture/bytecode/tables`), all the rest is taken over.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import Any

from lucerne._src.capture.bytecode import current_table
from lucerne._src.capture.bytecode.decode import MAGIC, VERSION
from tools import instruction_set

NOT_RUN = frozenset(
    (
        # of functions that are asynchronous
        "ASYNC_GEN_WRAP", "BEFORE_ASYNC_WITH", "END_ASYNC_FOR", "GET_AITER", "GET_ANEXT",
        "GET_AWAITABLE",
        # of the bodies of modules and classes, and of `import *`: they run as they are
        "DELETE_NAME", "IMPORT_STAR", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF",
        "LOAD_FROM_DICT_OR_GLOBALS", "LOAD_LOCALS", "LOAD_NAME", "PRINT_EXPR",
        "SETUP_ANNOTATIONS", "STORE_NAME",
        # the interpreter's own
        "CACHE", "ENTER_EXECUTOR", "EXIT_INIT_CHECK", "EXTENDED_ARG", "INTERPRETER_EXIT",
        "RESERVED", "STOPITERATION_ERROR", "TRACE_RECORD",
    )
)  # fmt: skip
"""Instructions that functions do not have, or that no table runs."""


def problems(known: dict[str, dict[str, Any]]) -> list[str]:
    """Where the table in use does not fit what an interpreter says of itself."""
    table = current_table()
    if table is None:
        return [f"there is no table for Python {VERSION} (bytecode {MAGIC})"]
    found = [f"{name} has no rule" for name in known if name not in table.rules | _not_run()]
    for name, rule in table.rules.items():
        if name not in known:
            found.append(f"{name} has a rule, but this Python has no such instruction")
        elif (known[name]["argument"] == "jump") != (rule.argument == "jump"):
            found.append(f"{name}: {known[name]['argument']}, its rule says {rule.argument}")
    return found


def _not_run() -> dict[str, Any]:
    return dict.fromkeys(NOT_RUN)


def changes(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """What differs between two Pythons, a line for each instruction."""
    found = [f"new      {name} {_shown(new[name])}" for name in sorted(new.keys() - old.keys())]
    found += [f"gone     {name}" for name in sorted(old.keys() - new.keys())]
    for name in sorted(old.keys() & new.keys()):
        if old[name] != new[name]:
            found.append(f"changed  {name} {_shown(old[name])} -> {_shown(new[name])}")
    return found


def _shown(one: dict[str, Any]) -> str:
    return f"({one['argument']}; {' '.join(map(str, one['effect']))})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", metavar="PYTHON", help="another Python to compare with")
    options = parser.parse_args()
    mine = instruction_set.described()
    if options.against:
        command = [options.against, instruction_set.__file__]
        theirs = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        print(*changes(theirs, mine), sep="\n")
    found = problems(mine)
    print(*found or [f"Python {VERSION}: the table fits, {len(mine)} instructions"], sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
