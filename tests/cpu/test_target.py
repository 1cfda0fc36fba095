"""The description of the processor, read from what the system prints."""

import os
import subprocess
import sys

import pytest

from lucerne._src.backends.cpu.emit.target import (
    HOST,
    VECTOR_BYTES,
    Target,
    detect,
    left_out,
    parse_cpuinfo,
)
from lucerne._src.backends.cpu.runtime.llvm import _without
from lucerne._src.base.config import config

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


# ---- a smaller processor, by setting -----------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "names"),
    [("", ()), ("-amx", ("amx",)), (" -amx, -avx512 ", ("amx", "avx512")), ("-a_b,", ("ab",))],
)
def test_what_the_setting_leaves_out(text: str, names: tuple[str, ...]) -> None:
    assert left_out(text) == names


@pytest.mark.parametrize("text", ["amx", "+amx", "-", "-amx avx512,x"])
def test_a_setting_that_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="minus before each, like '-amx,-avx512'"):
        left_out(text)


def test_features_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "cpu_features", "-amx,-avx512")
    found = detect()
    assert found.features == {f for f in HOST.features if f[:3] != "amx" and f[:6] != "avx512"}
    assert (found.has_amx, found.has_avx512) == (False, False)
    assert HOST.features == found.features or HOST.identity != found.identity


def test_llvm_is_told_too() -> None:
    assert _without(b"+avx2,+avx512f,-avx512er,+amx-tile", ("amx", "avx512")) == (
        b"+avx2,-avx512f,-avx512er,-amx-tile"
    )
    assert _without(b"+avx2,-sse4a", ()) == b"+avx2,-sse4a"
    assert _without(b"+avx512bf16,+avx512f", left_out("-avx512_bf16")) == b"-avx512bf16,+avx512f"


SMALLER = """
import lucerne
from lucerne._src.backends.cpu.emit.target import HOST, VECTOR_BYTES
from lucerne._src.backends.cpu.gemm.amx.products import has_amx
from lucerne._src.backends.cpu.runtime.llvm import llvm
lucerne.manual_seed(0)
a, b = lucerne.rand(70, 300), lucerne.rand(300, 90)
lucerne.testing.assert_close((a @ b).double(), a.double() @ b.double(), rtol=1e-5, atol=1e-5)
lucerne.testing.assert_close(a.exp().log(), a, rtol=1e-5, atol=1e-6)
for d in (lucerne.bfloat16, lucerne.float16):
    want = (a.to(d).float() @ b.to(d).float()).to(d)
    lucerne.testing.assert_close(a.to(d) @ b.to(d), want, rtol=1e-2, atol=1e-2)
    q = a[:, :32].to(d).reshape(2, 35, 32)
    found = lucerne.nn.functional.scaled_dot_product_attention(q, q, q)
    assert found.dtype is d and found.isfinite().all()
text = llvm().features.decode().split(",")
assert not [w for w in text if w.startswith(("+avx512", "+amx"))], text
print(VECTOR_BYTES <= 32, has_amx())
"""


@pytest.mark.skipif(not HOST.is_x86, reason="other processors have other features")
def test_a_process_does_without() -> None:
    """Numbers still come out right, and no instruction is used that was left out."""
    settings = {"LUCERNE_CPU_FEATURES": "-amx,-avx512", "LUCERNE_CACHE_DIR": ""}
    done = subprocess.run(
        [sys.executable, "-c", SMALLER],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["True", "False"], done.stderr
