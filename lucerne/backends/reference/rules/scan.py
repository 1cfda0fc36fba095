"""Rules of the scan family."""

from __future__ import annotations
