"""One self-contained page: ops against metrics, coloured, with a filter and the failures."""

import html
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.conformance import report
from tests.conformance.metrics import METRICS
from tests.conformance.result import Tally

SHOWN_FAILURES = 3

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Lucerne conformance</title>
<style>
  body { font: 14px/1.4 system-ui, sans-serif; margin: 2rem; color: #222; }
  table { border-collapse: collapse; }
  th, td { padding: 2px 8px; border: 1px solid #ddd; text-align: left; white-space: nowrap; }
  thead th { position: sticky; top: 0; background: #f4f4f4; }
  td.pass { background: #d8f3dc; }
  td.part { background: #fff3bf; }
  td.fail { background: #ffc9c9; }
  td.pass, td.part, td.fail { cursor: pointer; text-align: right; }
  input { font: inherit; padding: 4px 8px; width: 22rem; margin: 1rem 1rem 1rem 0; }
  pre { background: #f8f8f8; padding: 1rem; white-space: pre-wrap; }
</style>
<h1>Lucerne conformance</h1>
<p>@ABOUT@</p>
<pre>@SUMMARY@</pre>
<input id="filter" placeholder="op name (regular expression)">
<label><input id="failing" type="checkbox" style="width:auto"> only failing</label>
<pre id="detail">Click a cell to read its failures.</pre>
<table><thead id="head"></thead><tbody id="body"></tbody></table>
<script>
const DATA = @DATA@;
const head = document.getElementById("head"), body = document.getElementById("body");
const row = cells => "<tr>" + cells.join("") + "</tr>";
head.innerHTML = row(["op", "tier", ...DATA.metrics].map(name => `<th>${name}</th>`));
function cell(entry, metric) {
  const found = entry.cells[metric];
  if (!found) return "<td></td>";
  const [passed, total] = found;
  const kind = passed === total ? "pass" : passed ? "part" : "fail";
  const data = `data-op="${entry.op}" data-metric="${metric}"`;
  return `<td class="${kind}" ${data}>${passed}/${total}</td>`;
}
function draw() {
  const pattern = new RegExp(document.getElementById("filter").value || ".");
  const failing = document.getElementById("failing").checked;
  body.innerHTML = DATA.entries
    .filter(entry => pattern.test(entry.op) && (!failing || !entry.ok))
    .map(entry => row([`<th>${entry.op}</th>`, `<td>${entry.tier}</td>`,
                       ...DATA.metrics.map(metric => cell(entry, metric))]))
    .join("");
}
body.addEventListener("click", event => {
  const {op, metric} = event.target.dataset;
  if (!op) return;
  const texts = (DATA.failures[op] || {})[metric] || ["no failure"];
  document.getElementById("detail").textContent = `${op} ${metric}\\n` + texts.join("\\n");
});
document.getElementById("filter").addEventListener("input", draw);
document.getElementById("failing").addEventListener("change", draw);
draw();
</script>
</html>
"""


def write(path: Path, tallies: list[Tally], about: dict[str, Any]) -> None:
    """The page for a run."""
    parts = {
        "@ABOUT@": html.escape(", ".join(f"{key} {value}" for key, value in about.items())),
        "@SUMMARY@": html.escape(report.summary(tallies)),
        "@DATA@": json.dumps(_data(tallies)).replace("</", "<\\/"),
    }
    page = PAGE
    for mark, text in parts.items():
        page = page.replace(mark, text)
    path.write_text(page, encoding="utf-8")


def _data(tallies: list[Tally]) -> dict[str, Any]:
    cells: dict[str, dict[str, list[int]]] = defaultdict(dict)
    failures: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    tiers: dict[str, str] = {}
    clean: dict[str, bool] = defaultdict(lambda: True)
    for tally in tallies:
        counts = cells[tally.entry].setdefault(tally.metric, [0, 0])
        counts[0] += tally.passed
        counts[1] += tally.samples
        tiers[tally.entry] = tally.tier
        clean[tally.entry] &= tally.ok
        for failure in tally.failures[:SHOWN_FAILURES]:
            text = f"{tally.dtype} {failure.sample} {failure.check}: {failure.message}"
            failures[tally.entry][tally.metric].append(f"{text}\n{failure.trace}".rstrip())
    seen = {tally.metric for tally in tallies}
    entries = [
        {"op": op, "tier": tiers[op], "ok": clean[op], "cells": found}
        for op, found in cells.items()
    ]
    metrics = [metric for metric in METRICS if metric in seen]
    return {"metrics": metrics, "entries": entries, "failures": failures}
