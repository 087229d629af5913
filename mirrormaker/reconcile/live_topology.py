"""The topology in force, and how another one takes its place: by a changed file, on demand, or posted.

A text with errors changes nothing: what is in force stays so, and `problem` says why until a good text comes.
So does a good one that cannot come into force here (`Subject.check`). Owned by the daemon's event loop, files
are read and parsed in threads; one change at a time.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from broker.clock import Clock
from broker.errors import BrokerError, ConfigurationError
from broker.telemetry import logger
from mirrormaker.reconcile.routes import RouteSteps
from mirrormaker.reconcile.topology_file import TopologyFile, TopologyText
from mirrormaker.topology.model import Topology

LOOK_INTERVAL_MS = 1000

_log = logger("topology")


class OutdatedTopologyError(BrokerError):
    """Whoever wants to replace the topology has looked at another one than that in force."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedTopology:
    """A topology and the text that says it."""

    topology: Topology
    source: TopologyText


class Subject(Protocol):
    """What the topology is in force for."""

    def check(self, topology: Topology) -> None:
        """Raises ConfigurationError when it cannot come into force while the process runs."""
        ...

    def apply(self, loaded: LoadedTopology) -> RouteSteps:
        """Have it in force. Returns what is being done about it."""
        ...


class LiveTopology:
    """See the module."""

    def __init__(self, loaded: LoadedTopology, file: TopologyFile, subject: Subject, clock: Clock) -> None:
        self.loaded = loaded
        self.asked = loaded.topology
        """What the file said when it was last read without errors: another one than that in force where it is
        refused.
        """
        self.applied_at_ms = clock.now_ms()
        self.problem: str | None = None
        """Why the file as it is now is not in force; lines, None when it is."""
        self.reloads = 0
        """Changes put in force since the start."""
        self.failures = 0
        """Changes refused since the start."""
        self._file = file
        self._subject = subject
        self._clock = clock
        self._turn = asyncio.Lock()

    async def follow(self) -> None:
        """Put changes of the file in force as they come, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_INTERVAL_MS / 1000)
            async with self._turn:
                try:
                    source = await asyncio.to_thread(self._file.look)
                    if source is not None:
                        await self._take(source)
                except ConfigurationError as error:
                    self._refuse(error)

    async def reload(self) -> RouteSteps:
        """Put the file as it is now in force. Raises ConfigurationError with every problem of it."""
        async with self._turn:
            try:
                return await self._take(await asyncio.to_thread(self._file.read))
            except ConfigurationError as error:
                self._refuse(error)
                raise

    async def replace(self, text: str, *, expected_digest: str | None = None) -> RouteSteps:
        """Put `text` in force, and into the file. With `expected_digest` only if that is what is in force and
        the file holds nothing else.

        Raises ConfigurationError, with the problems of `text`, and OutdatedTopologyError; then nothing has
        changed.
        """
        async with self._turn:
            if expected_digest is not None:
                await self._require_unchanged(expected_digest)
            source = TopologyText(text=text, file=self._file.path)
            topology = await _parse(source)
            self._subject.check(topology)
            await asyncio.to_thread(self._file.replace, text)
            return self._apply(LoadedTopology(topology=topology, source=source))

    async def _require_unchanged(self, digest: str) -> None:
        """Raises OutdatedTopologyError where something else is in force, and where the file holds an edit
        that is not, or not yet.
        """
        in_force = self.loaded.source.digest
        if digest != in_force:
            raise OutdatedTopologyError(f"the topology in force is {in_force}, not {digest}")
        held = await asyncio.to_thread(self._file.held)
        if held is not None and held.digest != in_force:
            raise OutdatedTopologyError(
                f"{held.file} holds {held.digest}, an edit that is not in force: it would be lost"
            )

    async def _take(self, source: TopologyText) -> RouteSteps:
        self.asked = topology = await _parse(source)
        self._subject.check(topology)
        return self._apply(LoadedTopology(topology=topology, source=source))

    def _apply(self, loaded: LoadedTopology) -> RouteSteps:
        steps = self._subject.apply(loaded)
        if loaded.source.digest != self.loaded.source.digest:
            self.reloads += 1
            self.applied_at_ms = self._clock.now_ms()
        self.loaded = loaded
        self.asked = loaded.topology
        self.problem = None
        _log.info(
            "topology_applied",
            digest=loaded.source.digest,
            generation=loaded.topology.generation,
            **{what: names for what, names in steps.describe().items() if what != "kept"},
            kept=len(steps.keep),
        )
        return steps

    def _refuse(self, error: ConfigurationError) -> None:
        self.failures += 1
        self.problem = str(error)
        _log.warning("topology_refused", in_force=self.loaded.source.digest, problems=error.problems)


async def _parse(source: TopologyText) -> Topology:
    """Raises ConfigurationError with every problem, and for a text that the loader itself fails at: no edit
    ends a daemon.
    """
    try:
        return await asyncio.to_thread(source.parse)
    except ConfigurationError:
        raise
    except Exception as error:
        _log.error("topology_not_read", digest=source.digest, exc_info=error)
        raise ConfigurationError([f"{source.file}: cannot be read: {error!r}"]) from error
