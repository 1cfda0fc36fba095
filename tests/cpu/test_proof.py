"""The proofs of `tests.cpu.proof`, in the size of a test, and that they find what they look for."""

import os
import re
import subprocess
import sys
from functools import cache

import numpy as np
import pytest

import lucerne
from lucerne._src.backends.cpu.gemm import choose
from lucerne._src.backends.cpu.gemm.amx.products import has_amx
from lucerne._src.backends.cpu.gemm.plan import GemmProduct
from lucerne._src.backends.cpu.rules import table
from lucerne._src.base.config import config
from lucerne._src.conformance import frozen_cases, run
from lucerne._src.tensor.eager import plans
from tests.cpu.proof import budget, cases, compiled, determinism, tiles

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="fences are made of Linux pages")


def proof(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.cpu.proof", *arguments],
        capture_output=True,
        text=True,
        timeout=600,
    )


# ---- the guard proof --------------------------------------------------------------------------


@pytest.mark.slow
def test_kernels_stay_inside_their_tensors() -> None:
    """Every op of the table, some sizes and layouts; all of them by `--full`."""
    done = proof()
    assert done.returncode == 0, done.stdout + done.stderr
    ending = r"(\d+) ops, (\d+) cases .* 0 faults, 0 bytes touched, 0 differing bits, 0 wrong"
    found = re.search(ending, done.stdout)
    assert found, done.stdout
    assert int(found[1]) > 500
    assert int(found[2]) > 1000


@cache
def planted() -> dict[str, tuple[int, ...]]:
    """Faults, touched bytes, differing bits and wrong results of each planted kernel."""
    rows = re.findall(r"^(\w+) +1 +\d+((?: +\d+){4})$", proof("planted").stdout, re.M)
    return {name: tuple(map(int, numbers.split())) for name, numbers in rows}


@pytest.mark.parametrize("name", ["long_read", "long_write", "early_write", "written_space"])
def test_planted_access_outside_is_a_fault(name: str) -> None:
    assert planted()[name] == (1, 0, 0, 0)


@pytest.mark.parametrize("name", ["written_input", "written_gap"])
def test_planted_write_between_elements_is_seen(name: str) -> None:
    faults, touched, bits, wrong = planted()[name]
    assert (faults, bits, wrong) == (0, 0, 0)
    assert touched > 0


@pytest.mark.parametrize("name", ["read_gap", "read_space", "unwritten"])
def test_planted_read_of_undefined_bytes_is_seen(name: str) -> None:
    faults, touched, bits, _ = planted()[name]
    assert (faults, touched) == (0, 0)
    assert bits > 0


def test_planted_other_function_is_seen() -> None:
    faults, touched, bits, wrong = planted()["doubled"]
    assert (faults, touched, bits) == (0, 0, 0)
    assert wrong > 0


def test_right_kernel_beside_the_planted_ones_passes() -> None:
    assert planted()["right"] == (0, 0, 0, 0)


def test_planted_steps_of_programs_are_seen() -> None:
    assert planted()["compiled_long_write"] == (1, 0, 0, 0)
    assert planted()["compiled_right"] == (0, 0, 0, 0)
    faults, touched, bits, _ = planted()["compiled_read_space"]
    assert (faults, touched) == (0, 0)
    assert bits > 0


def test_other_results_of_a_compiled_function_are_wrong() -> None:
    found = np.array([1.0, np.nan, np.inf, 3.0])
    assert compiled.difference(found, found * (1 + 1e-5), lucerne.float32) == ""
    for other in (found + 0.1, np.array([1.0, 2.0, np.inf, 3.0]), -found):
        assert compiled.difference(found, other, lucerne.float32)
    assert compiled.difference(np.array([1, 2]), np.array([1, 3]), lucerne.int64)
    replay = compiled.Replay("x(3) * 2", lambda grad: cases.Maker("float32", 3, "plain"), 3)
    compiled.run_compiled(replay, backward=False)
    with pytest.raises(compiled.Wrong, match="result 0"):
        compiled._compare([lucerne.ones(3)], replay.eager(backward=False))


def test_tiles_are_taken_whatever_the_size() -> None:
    small = GemmProduct(m=3, n=5, k=7, a_row=7, a_k=1, b_k=5, b_col=1, c_row=5)
    assert tiles.patched(), "another module asks whether tiles suit a product"
    if not has_amx():
        pytest.skip("this machine has no AMX tiles")
    assert not choose.amx_takes(small)
    with tiles.tiles_for_all():
        assert choose.amx_takes(small)
    assert not choose.amx_takes(small)


# ---- the reference backend ---------------------------------------------------------------------

LIBRARY = {"svd_factors"}
"""What NumPy's LAPACK does on purpose."""


@pytest.mark.slow
def test_first_tier_agrees_and_needs_no_reference_backend() -> None:
    """torch's answers to what nearly every model calls, from the engine's own kernels."""
    if config.host_backend != "cpu":
        pytest.skip("the device cpu is served by another backend")
    plans.clear_plans()
    found = run([c for c in frozen_cases(lucerne) if c.tier == "T0"], "cpu")
    assert not [f"{o.op} {o.dtype}: {o.first_failure}" for o in found if not o.ok]
    assert not {name for o in found for name in o.fallbacks} - LIBRARY


# ---- determinism ------------------------------------------------------------------------------


@pytest.mark.slow
def test_results_do_not_depend_on_threads_or_process() -> None:
    """One dtype of each row; 20 processes and all dtypes by `--full`."""
    children = [determinism.child((1, 2, 4), quick=True), determinism.child((4,), quick=True)]
    found = [hashes for child in children for hashes in child.values()]
    assert len(found[0]) == len(determinism.WORK)
    different = [name for name in found[0] if len({hashes[name] for hashes in found}) > 1]
    assert not different


# ---- budgets ----------------------------------------------------------------------------------


def test_import_is_lean() -> None:
    """What takes time and memory is not there; seconds are judged by `tests.cpu.proof budget`."""
    code = (
        "import sys, lucerne\n"
        "late = {'llvmlite', 'ctypes.util', 'importlib.metadata', 'scipy', 'unittest'}\n"
        "families = [m for m in sys.modules if m.startswith('lucerne._src.backends.cpu.conv')]\n"
        "print(*(late & set(sys.modules)), *families)\n"
    )
    settings = {**os.environ, "LUCERNE_HOST_BACKEND": "cpu"}
    run = [sys.executable, "-c", code]
    subprocess.run(run, env=settings, check=True)  # fills the disk cache
    done = subprocess.run(run, env=settings, check=True, capture_output=True, text=True)
    assert done.stdout.split() == []
    assert budget.measure_import(1)["megabytes"] <= budget.IMPORT_MEGABYTES


def test_families_say_what_their_modules_have() -> None:
    """The table that lets rules be loaded late is complete: `rule` refuses what it doesn't list."""
    for family, names in table.FAMILIES.items():
        table.load(family)
        for name in names:
            assert table.RULES[name].__module__.endswith(f".{family}"), name


def test_rule_missing_from_the_table_is_refused() -> None:
    def newcomer(node: object) -> None:
        """A rule of no family."""

    with pytest.raises(ValueError, match=r"does not list 'no_such_op' in the family 'tests\."):
        table.rule("no_such_op")(newcomer)
    assert table.RULES["conv"]  # its family is loaded
    with pytest.raises(ValueError, match="already"):
        table.rule("conv")(newcomer)
