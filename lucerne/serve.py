"""`lucerne.serve`: exported programs and language models behind HTTP, as an ASGI application."""

from __future__ import annotations

from lucerne._src.serve.app import App as App
from lucerne._src.serve.app import ServeLimits as ServeLimits
from lucerne._src.serve.language_models import LanguageModelSource as LanguageModelSource
