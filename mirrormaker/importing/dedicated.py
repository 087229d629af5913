"""The properties file of MirrorMaker 2 in processes of its own: `clusters`, `A.bootstrap.servers`,
`A->B.enabled`. Pure.

Of a flow the most particular setting counts: of the flow, then of all of them. Settings of a cluster are for
whoever reaches it; its consumers belong to the flows that lead from there, its producers to those that lead
there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import permutations
from pathlib import Path

from broker.config_file import Entry
from broker.settings import boolean, names
from mirrormaker.importing.mirrors import BOOTSTRAP, ENABLED, Flow, Mirrors, Settings, is_of_cluster
from mirrormaker.topology.document import suggestion

CLUSTERS = "clusters"
_ARROW = "->"
_EXACTLY_ONCE = "exactly.once.source.support"
"""Of the workers at a target."""
_OF_NOBODY = "MirrorMaker 2 reads it of a cluster or a flow alone, with that before its name"
_OF_ALL = "enables every flow, both ways, but those that say otherwise: each has a route"
_WITHOUT_HEARTBEATS = "enables no flow that emits no heartbeats: MirrorMaker 2 has A->B.enabled for these"
_CLIENTS = ("consumer.", "producer.", "admin.", "source.", "target.")
_NO_CLIENT = "consumer.poll.timeout.ms"
_ROLES_AT_SOURCE = {"consumer.": "consumer.", "admin.": "source.admin."}
_ROLES_AT_TARGET = {"producer.": "producer.", "admin.": "target.admin."}


def read_dedicated(file: Path, entries: Iterable[Entry], mirrors: Mirrors) -> None:
    """Add what the file says to `mirrors`."""
    given = {entry.name: entry for entry in entries}
    named = given.get(CLUSTERS)
    if named is None:
        mirrors.remarks.report_file(file, f"{CLUSTERS}: is missing: the names of the clusters")
        return
    told = Settings(given, mirrors.remarks).read(CLUSTERS, names())
    aliases = tuple(dict.fromkeys(told or ()))
    if not aliases:
        mirrors.remarks.report(named, "names no cluster")
        return
    parts = _Parts(aliases, mirrors)
    for entry in given.values():
        parts.add(entry)
    common = {name: entry for name, entry in parts.common.items() if is_of_cluster(name)}
    for alias in aliases:
        own = {name: entry for name, entry in parts.clusters[alias].items() if is_of_cluster(name)}
        mirrors.add_cluster(alias, common | own, named)
    flows = list(parts.enabled_flows())
    mirrors.flows += flows
    if not flows and not mirrors.remarks.problems:
        message = f"no flow between them is enabled: {aliases[0]}{_ARROW}OTHER.{ENABLED} = true"
        mirrors.remarks.report(named, message)


class _Parts:
    """The entries of a file by what they are for."""

    def __init__(self, aliases: tuple[str, ...], mirrors: Mirrors) -> None:
        self.clusters: dict[str, dict[str, Entry]] = {alias: {} for alias in aliases}
        self.common: dict[str, Entry] = {}
        self._flows: dict[tuple[str, str], dict[str, Entry]] = {}
        self._mirrors = mirrors
        self._longest_first = sorted(aliases, key=len, reverse=True)

    def add(self, entry: Entry) -> None:
        """Put the entry where it belongs."""
        source, arrow, rest = entry.name.partition(_ARROW)
        if arrow:
            self._add_to_flow(source, rest, entry)
            return
        alias, name = self._split(entry.name)
        self._mirrors.all[entry] = name
        if alias is not None:
            self.clusters[alias][name] = entry
        elif name.endswith(f".{BOOTSTRAP}"):
            self._report_unknown(name.removesuffix(f".{BOOTSTRAP}"), entry)
        elif name == _EXACTLY_ONCE or (name.startswith(_CLIENTS) and name != _NO_CLIENT):
            self._mirrors.remarks.note(entry, f"left out: {_OF_NOBODY}")
        else:
            self.common[name] = entry

    def enabled_flows(self) -> Iterable[Flow]:
        """Those between two clusters that are to copy something."""
        for ends in permutations(self.clusters, 2):
            own = self._flows.get(ends, {})
            settings = Settings(self._settings_of(*ends, own), self._mirrors.remarks)
            enabling = settings.find(ENABLED)
            if enabling is not None and self._is_enabled(settings, of_all=ENABLED not in own):
                yield Flow(source=ends[0], target=ends[1], settings=settings, named_by=enabling)
                continue
            for name, entry in own.items():
                self._mirrors.remarks.use(entry)
                if name != ENABLED:
                    self._mirrors.remarks.note(entry, "the flow is not enabled, and no route is made for it")

    @staticmethod
    def _is_enabled(settings: Settings, *, of_all: bool) -> bool:
        """What is said of all flows counts for those that emit heartbeats: others have no workers."""
        if settings.read(ENABLED, boolean()) is False:
            return False
        has_workers = not of_all or settings.read("emit.heartbeats.enabled", boolean()) is not False
        if of_all:
            settings.note(ENABLED, _OF_ALL if has_workers else _WITHOUT_HEARTBEATS)
        return has_workers

    def _settings_of(self, source: str, target: str, own: Mapping[str, Entry]) -> dict[str, Entry]:
        at_source, at_target = self.clusters[source], self.clusters[target]
        workers = {name: entry for name, entry in at_target.items() if name == _EXACTLY_ONCE}
        common = {name: entry for name, entry in self.common.items() if not is_of_cluster(name)}
        clients = {
            **_renamed(at_source, _ROLES_AT_SOURCE),
            **_renamed(at_target, _ROLES_AT_TARGET),
            **_renamed(own, {"source.consumer.": "consumer.", "target.producer.": "producer."}),
        }
        return {**common, **workers, **clients, **own}

    def _add_to_flow(self, source: str, rest: str, entry: Entry) -> None:
        target, name = self._split(rest)
        self._mirrors.all[entry] = name
        if source not in self.clusters:
            self._report_unknown(source, entry)
        if target is None:
            self._report_unknown(rest.partition(".")[0], entry)
        elif source == target:
            self._mirrors.remarks.report(entry, "leads to the cluster that it comes from")
        elif source in self.clusters:
            self._flows.setdefault((source, target), {})[name] = entry

    def _split(self, name: str) -> tuple[str | None, str]:
        """The cluster that a setting is for, and its name there."""
        for alias in self._longest_first:
            if name.startswith(f"{alias}."):
                return alias, name[len(alias) + 1 :]
        return None, name

    def _report_unknown(self, alias: str, entry: Entry) -> None:
        hint = suggestion(alias, self.clusters)
        self._mirrors.remarks.report(entry, f"there is no cluster {alias!r} among '{CLUSTERS}'{hint}")


def _renamed(entries: Mapping[str, Entry], prefixes: Mapping[str, str]) -> dict[str, Entry]:
    """Those whose names begin so, with another beginning."""
    return {
        new + name.removeprefix(old): entry
        for old, new in prefixes.items()
        for name, entry in entries.items()
        if name.startswith(old)
    }
