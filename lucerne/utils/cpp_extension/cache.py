"""Libraries on disk, by what they were made from: a second process does not run the compiler."""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Sequence

from lucerne._src.base.config import config
from lucerne._src.base.process.sealed_folder import Cache

_FORMAT = "1"
_FOLDER_BYTES = 1 << 28


@functools.cache
def folder() -> Cache:
    path = os.path.join(config.cache_dir, "extensions") if config.cache_dir else ""
    return Cache(path, _FOLDER_BYTES, ".extension", "compiled extensions", inside=config.cache_dir)


def key_of(parts: Sequence[str]) -> bytes:
    """The name of an entry: each part with its length, so that no two lists are alike."""
    digest = hashlib.sha256(_FORMAT.encode())
    for part in parts:
        raw = part.encode()
        digest.update(f"{len(raw)}:".encode() + raw)
    return digest.digest()


def digest_of(path: str) -> str:
    """Of the content of a file; empty where it can't be read."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


def read(key: bytes) -> bytes | None:
    """The library kept for `key`, if the headers it included are as they were."""
    kept = folder().read(key)
    if kept is None:
        return None
    head, _, library = kept.partition(b"\n")
    if any(digest_of(path) != seen for path, seen in json.loads(head)):
        return None
    return library


def write(key: bytes, library: bytes, headers: Sequence[str]) -> None:
    head = json.dumps([[path, digest_of(path)] for path in headers])
    folder().write(key, head.encode() + b"\n" + library)
