"""`python -m lucerne.utils.collect_env`: what to paste into an issue.

>>> from lucerne.utils.collect_env import get_pretty_env_info
>>> "Python:" in get_pretty_env_info()
True
"""

from __future__ import annotations

import sys

from lucerne._src.environment import text as get_pretty_env_info


def main() -> None:
    """Print it."""
    sys.stdout.write(get_pretty_env_info() + "\n")


if __name__ == "__main__":
    main()

__all__ = ["get_pretty_env_info", "main"]
