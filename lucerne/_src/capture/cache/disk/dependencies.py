"""Which code ran while a function was captured: an edit of any of it makes what was stored stale.

Code that the walk of `key` has found is in the key already. The rest (a function that was looked
up by its name in a string, a method of an object made on the way) is remembered by its file.
"""

from __future__ import annotations

import hashlib
import os
import sys
import types
from collections.abc import Iterator

from lucerne._src.base.process import source_digests
from lucerne._src.base.process.executed_code import Calls, ExecutedCode
from lucerne._src.capture.cache.disk.code_digests import is_foreign, is_standard
from lucerne._src.capture.cache.disk.key import CacheKey, UnstorableError


class CodeDependencies:
    """`with Watch() as watch`: afterwards `watch.codes` has the code that ran (see `base.seen`).

    `is_complete` is False where some ran that nobody looked at.
    """

    def __init__(self) -> None:
        self.codes: Calls = {}
        self.is_complete = True

    def __enter__(self) -> CodeDependencies:
        self._outer = ExecutedCode.codes, ExecutedCode.outermost, ExecutedCode.is_complete
        ExecutedCode.codes, ExecutedCode.outermost, ExecutedCode.is_complete = (
            self.codes,
            sys._getframe(1),
            True,
        )
        ExecutedCode.noted_run = 0
        return self

    def __exit__(self, *problem: object) -> None:
        self.is_complete = ExecutedCode.is_complete
        ExecutedCode.codes, ExecutedCode.outermost, ExecutedCode.is_complete = self._outer
        ExecutedCode.noted_run = 0

    @property
    def foreign(self) -> Iterator[tuple[types.CodeType, types.CodeType | None]]:
        """The code among it that is nobody's whose version is in the key, and who called it."""
        for code, caller, module in self.codes.values():
            made = code.co_filename == "<string>" and str(module).startswith("namedtuple_")
            if not made and not is_standard(module) and is_foreign(code):
                yield code, caller


def files_behind(watch: CodeDependencies, world: CacheKey) -> list[tuple[str, str]]:
    """(path, digest) of the files whose code ran and is not described by the world."""
    if not watch.is_complete:
        raise UnstorableError("it ran outside of the bytecode machine: nobody saw what code ran")
    ran = list(watch.foreign)
    seen = {id(code) for code, _ in ran}
    for number, why in world.impure.items():
        if number in seen:
            name = world.codes[number].co_qualname
            raise UnstorableError(f"{name} uses {why}, which may be another in the next process")
    paths = set()
    for code, caller in ran:
        if id(code) in world.codes:
            continue
        if caller is not None and not is_foreign(caller):
            raise UnstorableError(f"{code.co_qualname} is called by something nobody can see")
        paths.add(code.co_filename)
    return [(path, digest_of_file(path)) for path in sorted(paths)]


def digest_of_file(path: str) -> str:
    """Of its text; what is no file, or was edited since the process started, can't be relied on."""
    try:
        found = os.stat(path)
        if max(found.st_mtime, found.st_ctime) > source_digests.process_start():
            raise UnstorableError(f"{path} was edited while the process ran")
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        raise UnstorableError(f"code that ran is in no file ({path})") from None
