"""The description of the processor, read from what the system prints."""

import pytest

from lucerne.backends.cpu.emit.target import HOST, VECTOR_BYTES, Target, detect, parse_cpuinfo

INTEL = """processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 85
model name\t: Intel(R) Xeon(R)
stepping\t: 7
siblings\t: 32
cpu cores\t: 16
flags\t\t: fpu sse2 fma avx2 avx512f avx512bw avx512vl avx512dq

processor\t: 1
flags\t\t: other
"""
ARM = """processor\t: 0
Features\t: fp asimd bf16
CPU implementer\t: 0x41
CPU part\t: 0xd40
"""


def test_first_processor_counts() -> None:
    name, features, threads = parse_cpuinfo(INTEL.splitlines())
    assert name == (
        "vendor_id=GenuineIntel,cpu family=6,model=85,stepping=7,model name=Intel(R) Xeon(R)"
    )
    assert "avx512bw" in features
    assert "other" not in features
    assert threads == 2


def test_arm_and_nothing() -> None:
    assert parse_cpuinfo(ARM.splitlines())[1:] == (frozenset({"fp", "asimd", "bf16"}), 1)
    assert parse_cpuinfo([]) == ("", frozenset(), 1)


WIDTHS = [
    ("avx512f avx512bw avx512vl avx512dq avx2 fma", 64, True, False),
    ("avx512f avx2 fma", 32, False, False),
    ("avx2 fma", 32, False, False),
    ("avx2", 16, False, False),
    ("asimd", 16, False, False),
    ("amx_tile amx_bf16 avx512f avx512bw avx512vl avx512dq", 64, True, True),
    ("amx_tile", 16, False, False),
]


@pytest.mark.parametrize(("features", "width", "avx512", "amx"), WIDTHS)
def test_width_follows_the_features(features: str, width: int, avx512: bool, amx: bool) -> None:
    target = Target("linux", "x86_64", "", frozenset(features.split()))
    assert (target.vector_bytes, target.has_avx512, target.has_amx) == (width, avx512, amx)


def test_identity_tells_processors_apart() -> None:
    one = Target("linux", "x86_64", "a", frozenset({"avx2"}))
    others = [
        Target("darwin", "x86_64", "a", frozenset({"avx2"})),
        Target("linux", "aarch64", "a", frozenset({"avx2"})),
        Target("linux", "x86_64", "b", frozenset({"avx2"})),
        Target("linux", "x86_64", "a", frozenset({"avx2", "fma"})),
    ]
    assert len({one.identity, *(other.identity for other in others)}) == 5


def test_this_machine() -> None:
    assert detect() == HOST
    assert HOST.vector_bytes == VECTOR_BYTES
    assert HOST.identity
