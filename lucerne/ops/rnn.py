"""Ops of the rnn family."""

from __future__ import annotations
