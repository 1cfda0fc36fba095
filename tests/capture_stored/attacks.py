"""Ways in which a file of the store may be wrong: none of them may be run."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

from lucerne._src.base.process.sealed_folder import HEAD, make_entry, parse_entry

Attack = Callable[[Path, Path, random.Random], None]
"""Given the file that will be asked for, another whole one, and where chance comes from."""


def truncated(path: Path, other: Path, chance: random.Random) -> None:
    raw = path.read_bytes()
    path.write_bytes(raw[: chance.randrange(len(raw))])


def bit_flipped(path: Path, other: Path, chance: random.Random) -> None:
    raw = bytearray(path.read_bytes())
    at = chance.randrange(8 * len(raw))
    raw[at // 8] ^= 1 << at % 8
    path.write_bytes(raw)


def longer(path: Path, other: Path, chance: random.Random) -> None:
    path.write_bytes(path.read_bytes() + chance.randbytes(chance.randrange(1, 64)))


def junk(path: Path, other: Path, chance: random.Random) -> None:
    path.write_bytes(chance.randbytes(path.stat().st_size))


def swapped(path: Path, other: Path, chance: random.Random) -> None:
    path.write_bytes(other.read_bytes())


def swapped_payload(path: Path, other: Path, chance: random.Random) -> None:
    path.write_bytes(path.read_bytes()[: HEAD.size] + other.read_bytes()[HEAD.size :])


def renamed_seal(path: Path, other: Path, chance: random.Random) -> None:
    """The key of this file in front of another one's seal and payload."""
    own, foreign = path.read_bytes(), other.read_bytes()
    path.write_bytes(own[:40] + foreign[40:])


def older_format(path: Path, other: Path, chance: random.Random) -> None:
    path.write_bytes(b"LUCERNE0" + path.read_bytes()[8:])


def pieces_exchanged(path: Path, other: Path, chance: random.Random) -> None:
    raw = bytearray(path.read_bytes())
    size = chance.randrange(1, len(raw) // 4)
    a, b = sorted(chance.randrange(0, len(raw) - size) for _ in range(2))
    raw[a : a + size], raw[b : b + size] = raw[b : b + size], raw[a : a + size]
    if bytes(raw) == path.read_bytes():
        raw[a] ^= 1
    path.write_bytes(raw)


def sealed_nonsense(path: Path, other: Path, chance: random.Random) -> None:
    """Sealed under the right key, but what is inside is no program."""
    key = bytes.fromhex(path.stem)
    payload = parse_entry(path.read_bytes(), key)
    assert payload is not None
    text = chance.choice((b"", b"{}", b"[" * 2000, b'{"files": 3}', payload[: len(payload) // 2]))
    size = len(text).to_bytes(8, "little") + (0).to_bytes(8, "little")
    path.write_bytes(make_entry(key, chance.choice((text, size + text))))


def writable_by_others(path: Path, other: Path, chance: random.Random) -> None:
    path.chmod(chance.choice((0o620, 0o602, 0o666)))


def of_another_user(path: Path, other: Path, chance: random.Random) -> None:
    """Only the superuser can give a file away; writable by others is as bad."""
    if os.geteuid() == 0:
        os.chown(path, 12345, -1)
    else:
        path.chmod(0o666)


def a_link(path: Path, other: Path, chance: random.Random) -> None:
    kept = path.with_suffix(".aside")
    path.rename(kept)
    path.symlink_to(kept)


def a_folder(path: Path, other: Path, chance: random.Random) -> None:
    path.unlink()
    path.mkdir()


def a_pipe(path: Path, other: Path, chance: random.Random) -> None:
    path.unlink()
    os.mkfifo(path)


ATTACKS: tuple[Attack, ...] = (
    truncated, bit_flipped, longer, junk, swapped, swapped_payload, renamed_seal, older_format,
    pieces_exchanged, sealed_nonsense, writable_by_others, of_another_user, a_link, a_folder,
    a_pipe,
)  # fmt: skip


def clean(path: Path) -> None:
    """Take away what an attack has left."""
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)
    path.with_suffix(".aside").unlink(missing_ok=True)
