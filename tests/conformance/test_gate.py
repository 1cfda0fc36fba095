"""The gate of every change, as a test: `make conformance` runs the same."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.nightly
@pytest.mark.torch
def test_fast_tier_has_no_unknown_failure() -> None:
    command = [sys.executable, "-m", "tests.conformance", "fast", "--failures-only"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
