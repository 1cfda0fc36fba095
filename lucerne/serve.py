"""`lucerne.serve`: exported programs behind the Open Inference Protocol, as an ASGI application."""

from __future__ import annotations

from lucerne._src.serve.app import App as App
from lucerne._src.serve.app import ServeLimits as ServeLimits
