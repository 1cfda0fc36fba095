"""`lucerne.distributed.constants`."""

from __future__ import annotations

from lucerne._src.distributed.processes.world import default_pg_timeout as default_pg_timeout
