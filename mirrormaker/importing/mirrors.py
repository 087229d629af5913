"""What the files of MirrorMaker 2 say, whichever way it runs: clusters, and the flows between them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from broker.config_file import Entry
from broker.settings import Kind
from mirrormaker.importing.remarks import Remarks
from mirrormaker.topology.naming import name_problem
from mirrormaker.topology.validate import CLUSTER_NAME_SIZE_MAX

T = TypeVar("T")

BOOTSTRAP = "bootstrap.servers"
ENABLED = "enabled"
SECURITY_PREFIXES = ("security.", "ssl.", "sasl.", "https.")
VARIABLE = "${"
UNFILLED = "is a variable, which nobody fills in here: say what it stands for"


def is_of_cluster(name: str) -> bool:
    """Whether a setting says where a cluster is, or how to reach it."""
    return name == BOOTSTRAP or name.startswith(SECURITY_PREFIXES)


class Settings:
    """Settings by the names that they have in the place that they are for."""

    def __init__(self, entries: Mapping[str, Entry], remarks: Remarks) -> None:
        self.entries = dict(entries)
        self.remarks = remarks

    def find(self, *names: str) -> Entry | None:
        """The entry of the first of these names that is given."""
        return next((self.entries[name] for name in names if name in self.entries), None)

    def text(self, *names: str) -> str | None:
        """What is given under the first of these names; a variable is a problem."""
        entry = self.find(*names)
        if entry is None:
            return None
        self.remarks.use(entry)
        if VARIABLE in entry.text:
            self.remarks.report(entry, UNFILLED)
            return None
        return entry.text

    def read(self, name: str, kind: Kind[T]) -> T | None:
        """The value; None where there is none, or none that makes sense, which is reported."""
        text = self.text(name)
        if text is None:
            return None
        try:
            return kind.parse(text)
        except ValueError as error:
            self.remarks.report(self.entries[name], str(error))
            return None

    def note(self, name: str, message: str) -> None:
        """Tell of a setting, if it is given."""
        if name in self.entries:
            self.remarks.note(self.entries[name], message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """What is to be copied from one cluster to another."""

    source: str
    target: str
    settings: Settings
    named_by: Entry
    """What says that there is such a flow."""
    name: str | None = None
    """What its connector is called."""

    @property
    def ends(self) -> tuple[str, str]:
        """Where from, and where to."""
        return self.source, self.target


@dataclass(slots=True)
class Mirrors:
    """All of it, as it is read file by file."""

    remarks: Remarks
    clusters: dict[str, dict[str, Entry]] = field(default_factory=dict)
    """Where clusters are, and how to reach them."""
    flows: list[Flow] = field(default_factory=list)
    beside: list[Flow] = field(default_factory=list)
    """What connectors say that copy nothing, for the flows with the same ends."""
    all: dict[Entry, str] = field(default_factory=dict)
    """Every entry, and its name in the place that it is for."""

    def add_cluster(self, name: str, settings: Mapping[str, Entry], named_by: Entry) -> None:
        """What a file says about a cluster; others must not say otherwise."""
        if problem := name_problem(name, CLUSTER_NAME_SIZE_MAX):
            self.remarks.report(named_by, problem)
        if BOOTSTRAP not in settings:
            self.remarks.report(named_by, f"{BOOTSTRAP} of {name!r} is missing")
        known = self.clusters.setdefault(name, {})
        for option, entry in settings.items():
            first = known.setdefault(option, entry)
            if first.text != entry.text:
                self.remarks.report(entry, f"says otherwise than {first.name} at {first.place}")
            elif first is not entry:
                self.remarks.use(entry)

    def settle_clients(self) -> None:
        """Have clusters know what only consumers, producers and admin clients of flows are told of how to
        reach them: here a cluster is reached in one way.
        """
        for flow in self.flows:
            roles = {"consumer.": flow.source, "source.admin.": flow.source}
            roles |= {"producer.": flow.target, "target.admin.": flow.target}
            for name, entry in flow.settings.entries.items():
                role = next(filter(name.startswith, roles), "")
                option = name.removeprefix(role)
                if role and option.startswith(SECURITY_PREFIXES):
                    self._settle(self.clusters.setdefault(roles[role], {}), option, entry)

    def _settle(self, known: dict[str, Entry], option: str, entry: Entry) -> None:
        first = known.setdefault(option, entry)
        if first.text != entry.text:
            self.remarks.note(entry, f"left out: a cluster is reached in one way, as {first.name} says")
        elif first is not entry:
            self.remarks.use(entry)
