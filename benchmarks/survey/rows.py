"""The survey's loop over the ops, with its progress on stderr."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import torch

from benchmarks.survey import report
from benchmarks.survey.measure import Row, survey
from tests.conformance import catalog
from tests.conformance.bridge import lucerne_bridge


def collect(options: argparse.Namespace) -> list[Row]:
    """Every row that the options ask for; saved now and then, so that a stop loses little."""
    bridge = lucerne_bridge()
    torch.set_num_threads(1)
    bridge.module.set_num_threads(1)
    entries = catalog.select(options.op, options.tiers)
    found: list[Row] = []
    begin = time.perf_counter()
    for place, entry in enumerate(entries, 1):
        rows = list(survey(entry, bridge, options.backward, options.limit, options.seconds))
        found += rows
        took = time.perf_counter() - begin
        print(f"[{place}/{len(entries)} {took:.0f} s] {entry.name}: {_told(rows)}", file=sys.stderr)
        if options.json and place % 20 == 0:
            report.save(found, Path(options.json))
    return found


def _told(rows: list[Row]) -> str:
    parts = [f"{r.size} {r.way} {r.ratio:.2f}" if r.torch else r.note for r in rows]
    return ", ".join(parts)
