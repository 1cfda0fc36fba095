"""`lucerne.cli`: the command `lucerne`."""

from __future__ import annotations

from lucerne._src.cli import main as main
from lucerne._src.cli import parser as parser
from lucerne._src.cli import top_package as top_package
