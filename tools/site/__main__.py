"""`python -m tools.site`: the documentation as a site, in build/docs.

python -m tools.site                  all of it; a warning or a dead link is an error
python -m tools.site --out FOLDER     elsewhere
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from pathlib import Path

from sphinx.cmd.build import build_main

from tools.site import links, reference, stage

HERE = Path(__file__).parent


def build(out: Path) -> int:
    """Stage the pages, write the reference, run Sphinx, look for dead links; the exit code."""
    began = time.perf_counter()
    source = out.with_name(out.name + "_source")
    pages = stage.write(source)
    entries = reference.write(source / "reference")
    (source / "_static").mkdir()
    shutil.copy(HERE / "site.css", source / "_static")
    shutil.copy(HERE / "conf.py", source)
    shutil.rmtree(out, ignore_errors=True)
    code = build_main(["-q", "-W", "--keep-going", "-j", "2", "-b", "html", str(source), str(out)])
    lost = links.dead(out)
    for line in lost:
        print(line, file=sys.stderr)
    seconds = time.perf_counter() - began
    print(f"{pages} pages, {entries} entries of the reference: {out}, {seconds:.0f} s")
    return code or int(bool(lost))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.site")
    parser.add_argument("--out", type=Path, default=stage.ROOT / "build" / "docs")
    return build(parser.parse_args().out)


if __name__ == "__main__":
    sys.exit(main())
