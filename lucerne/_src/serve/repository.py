"""A folder of models: `name/version/model.pt2`, of which the newest version is served."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lucerne._src.serve.http import HTTPError
from lucerne._src.serve.programs import ServedProgram
from lucerne._src.serve.queues import BatchQueue

FILE = "model.pt2"


@dataclass
class LoadedVersion:
    """A version that is served."""

    name: str
    version: str
    program: ServedProgram
    queue: BatchQueue


class Repository:
    """The models of a folder.

    `load` reads the newest version there is; requests go to the old one until the new one is
    ready, and those that the old one has are answered before it goes.
    """

    def __init__(
        self, folder: Path | None, queue_of: Callable[[str, ServedProgram], BatchQueue]
    ) -> None:
        self.folder, self._queue_of = folder, queue_of
        self.served: dict[str, LoadedVersion] = {}
        self._loading = asyncio.Lock()

    def names(self) -> list[str]:
        """Models that have a version, served or not."""
        if self.folder is None:
            return []
        found = (p for p in sorted(self.folder.iterdir()) if p.is_dir())
        return [p.name for p in found if self._versions(p)]

    def _versions(self, at: Path) -> list[int]:
        return sorted(
            int(p.name) for p in at.iterdir() if p.name.isdigit() and (p / FILE).is_file()
        )

    async def load_all(self) -> None:
        """Load every model of the folder."""
        for name in self.names():
            await self.load(name)

    async def load(self, name: str) -> LoadedVersion:
        """Serve the newest version of a model from now on."""
        if self.folder is None or name not in self.names():
            raise HTTPError(404, f"no model {name!r} in the folder")
        async with self._loading:
            newest = self._versions(self.folder / name)[-1]
            old = self.served.get(name)
            if old is not None and old.version == str(newest):
                return old
            path = self.folder / name / str(newest) / FILE
            try:
                program = await asyncio.to_thread(ServedProgram, path)
            except (OSError, RuntimeError, ValueError) as error:
                raise HTTPError(400, f"{name} version {newest} can't be served: {error}") from None
            made = LoadedVersion(name, str(newest), program, self._queue_of(name, program))
            self.served[name] = made
            if old is not None:
                await old.queue.close()
            return made

    def find(self, name: str, version: str | None) -> LoadedVersion:
        """What serves a request for this model."""
        found = self.served.get(name)
        if found is None:
            raise HTTPError(404, f"no model {name[:80]!r}; served are {', '.join(self.served)}")
        if version is not None and version != found.version:
            raise HTTPError(404, f"{name} is served in version {found.version}, not {version[:20]}")
        return found

    async def close(self) -> None:
        """Answer what waits, then let all models go."""
        await asyncio.gather(*(each.queue.close() for each in self.served.values()))
