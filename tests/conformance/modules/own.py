"""`M9o`: the 49 classes of torch.nn that module_db lacks, and five names that are no modules."""

import json

from tests.conformance import catalog
from tests.conformance.bridge import Bridge
from tests.conformance.modules import rows, samples
from tests.conformance.modules.check import check_cases
from tests.conformance.modules.container_rows import CONTAINERS, OTHERS
from tests.conformance.modules.layer_rows import LAYERS
from tests.conformance.result import Tally

CLASSES = 49
ROWS = {**LAYERS, **CONTAINERS, **OTHERS}


def wanted() -> list[str]:
    """The public names of torch.nn that module_db does not cover."""
    lists: dict[str, list[str]] = json.loads((catalog.DATA / "torch_api.json").read_text())
    covered = samples.load()
    return [name for name in lists["torch.nn"] if name not in covered]


def check(tally: Tally, name: str, bridge: Bridge) -> None:
    """All rows of one class."""
    check_cases(tally, rows.cases(ROWS[name]), bridge)
