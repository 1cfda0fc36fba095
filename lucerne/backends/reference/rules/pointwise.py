"""Rules of the pointwise family."""

from __future__ import annotations
