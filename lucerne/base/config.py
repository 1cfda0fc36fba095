"""Settings of the process, read from the environment once. The only reader of the environment."""

from __future__ import annotations

import dataclasses
import os


@dataclasses.dataclass
class Config:
    """What a user may switch. `LUCERNE_<NAME>` in the environment sets a field at import."""

    host_backend: str = "reference"
    """Which backend serves the device named `cpu`."""
    plan_cache_size: int = 65536
    """How many eager plans are kept before the cache starts anew."""
    user_lines: bool = True
    """Remember the user's line for saved tensors and in-place writes (for error messages)."""


def _read(environment: dict[str, str]) -> Config:
    config = Config()
    for field in dataclasses.fields(Config):
        text = environment.get(f"LUCERNE_{field.name.upper()}")
        if text is not None:
            setattr(config, field.name, _parse(text, type(getattr(config, field.name))))
    return config


def _parse(text: str, kind: type) -> object:
    if kind is bool:
        return text.strip().lower() not in ("", "0", "false", "no", "off")
    return kind(text)


config = _read(dict(os.environ))
