"""Programs and kernels of this process as one piece of bytes, to be carried to another machine.

    magic, SHA-256 of the rest, length of the list, the list (JSON), payload after payload

The list has a kind, a key and a length for each payload. Keys name the processor, the versions and
the package, so what is brought to another kind of machine is never found there. The digest finds
damage, not malice: the bytes hold machine code, so load only what you would run.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from lucerne._src import backends
from lucerne._src.base.process.sealed_folder import Cache
from lucerne._src.capture.cache.disk import lookup

_MAGIC = b"LUCBUND1"
_HEAD = struct.Struct("<8s32sQ")
PROGRAM, KERNEL = "program", "kernel"
_KEY_BYTES = 32


@dataclass
class CacheInfo:
    """What a piece holds: names by kind."""

    artifacts: dict[str, list[str]] = field(default_factory=dict)

    def __str__(self) -> str:
        return ", ".join(f"{len(names)} {kind}s" for kind, names in self.artifacts.items())


def _places() -> dict[str, Cache]:
    found = {PROGRAM: lookup.folder()}
    kept = backends.get(backends.HOST).kept()
    if kept is not None:
        found[KERNEL] = kept
    return found


def save() -> tuple[bytes, CacheInfo] | None:
    """All programs and kernels that this process found on disk or put there; None: no folder."""
    places = _places()
    if not all(place.is_on for place in places.values()):
        return None
    info, listed, payloads = CacheInfo(), [], []
    for kind, place in places.items():
        for key in list(place.used):
            payload = place.read(key)
            if payload is not None:
                listed.append([kind, key.hex(), len(payload)])
                payloads.append(payload)
                info.artifacts.setdefault(kind, []).append(key.hex())
    text = json.dumps(listed).encode()
    rest = b"".join([struct.pack("<Q", len(text)), text, *payloads])
    return _HEAD.pack(_MAGIC, hashlib.sha256(rest).digest(), len(rest)) + rest, info


def load(data: bytes) -> CacheInfo | None:
    """Put what `save` gave into the folders of this user; None: there are none.

    Raises ValueError for bytes that are not whole.
    """
    pieces = list(_pieces(data))
    places, info = _places(), CacheInfo()
    if not all(place.is_on for place in places.values()):
        return None
    for kind, key, payload in pieces:
        if kind in places:
            places[kind].write(key, payload)
            info.artifacts.setdefault(kind, []).append(key.hex())
    return info


def _pieces(data: bytes) -> Iterator[tuple[str, bytes, bytes]]:
    """Kind, key and payload of each; everything is checked before the first."""
    wrong = "load_cache_artifacts: not what save_cache_artifacts gave: it {}"
    if len(data) < _HEAD.size + 8:
        raise ValueError(wrong.format("is too short"))
    magic, digest, length = _HEAD.unpack_from(data)
    rest = data[_HEAD.size :]
    if magic != _MAGIC:
        raise ValueError(wrong.format("begins in another way"))
    if length != len(rest) or hashlib.sha256(rest).digest() != digest:
        raise ValueError(wrong.format("is damaged"))
    (size,) = struct.unpack_from("<Q", rest)
    listed = json.loads(rest[8 : 8 + size])
    at = 8 + size
    if at + sum(n for _, _, n in listed) != len(rest):
        raise ValueError(wrong.format("has another length than its list says"))
    for kind, name, count in listed:
        key = bytes.fromhex(name)
        if len(key) != _KEY_BYTES or count < 0:
            raise ValueError(wrong.format(f"has {name!r} for a key"))
        yield kind, key, rest[at : at + count]
        at += count
