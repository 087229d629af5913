"""Where batches have been, and so whether a route carries them on. Pure.

Every producer id by which mirrors write to a cluster is registered there, with the path that its batches
took: the ids of the clusters where they have been, the origin first. It is registered before the first batch
is sent. So of an id that is met in a batch, and that the registry, read to its end after that, does not name,
it is certain that it belongs to a producer of the cluster's own; so do batches without an id.

A route leaves out what has been at its destination, and what comes there by another way (`topology/ways`). A
path that is not the planned one, as after a change of the topology, is no reason to leave anything out: then
a record may come twice, and none is lost.

Numbers of origins are for one run of a route; 0 is what was born at the source.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from broker.errors import CorruptRecordsError
from broker.records.batch import BatchHeader
from mirrormaker.flow.intake import OriginUnknownError
from mirrormaker.flow.partition import Partition
from mirrormaker.topology.model import ClusterId, ClusterName
from mirrormaker.topology.ways import Ways

Path = tuple[ClusterId, ...]
"""Clusters where a batch has been before it came to the source, the origin first."""

PRODUCERS_KEPT = 100_000
"""Producer ids that are remembered; when there are more, all are asked for anew."""
PATHS_MAX = 1_000
"""Different paths in one route: each means producer ids of its own. There is one for each cluster where
records are born, unless the topology has changed.
"""

_BORN_HERE: Path = ()


class Provenance:
    """What a route knows of paths. `of` is what the copy machine asks (`hooks.TopicOrigins`)."""

    def __init__(
        self, source: ClusterId, destination: ClusterId, on_unknown: Callable[[], None] = lambda: None
    ) -> None:
        """`on_unknown` is called when there is something to be looked up: `unknown` or `nameless`."""
        self._source = source
        self._destination = destination
        self._on_unknown = on_unknown
        self._ways = Ways()
        self._names: Mapping[ClusterId, ClusterName] = {}
        self._numbers: dict[Path, int] = {_BORN_HERE: 0}
        self._paths: list[Path] = [_BORN_HERE]
        self._producers: dict[int, int] = {}
        """Producer id to number of its path."""
        self._unreadable: dict[int, str] = {}
        self._topics: dict[str, TopicOrigins] = {}
        self.unknown: set[int] = set()
        """Producer ids that were met, and have to be looked for in the registry."""
        self.nameless: set[ClusterId] = set()
        """Ids that were met on paths, and may be those of clusters on the ways: of one whose id is not known,
        or that was made anew and has another one now.
        """
        self._strangers: set[ClusterId] = set()
        """Ids that none of these clusters has."""

    def of(self, partition: Partition) -> TopicOrigins:
        """See `hooks.TopicOrigins`."""
        return self.of_topic(partition.source.topic)

    def of_topic(self, topic: str) -> TopicOrigins:
        """The origins of what the source has in `topic`."""
        origins = self._topics.get(topic)
        if origins is None:
            origins = self._topics[topic] = TopicOrigins(self, topic)
        return origins

    def plan(self, ways: Ways, ids: Mapping[ClusterName, ClusterId]) -> None:
        """Go by these ways. `ids`: of the clusters on them, as far as known."""
        if ways.clusters != self._ways.clusters:
            self._strangers.clear()
        self._ways = ways
        self._names = {cluster_id: name for name, cluster_id in ids.items()}
        self._topics.clear()
        self.nameless.clear()

    def settle(self, ids: Iterable[ClusterId]) -> None:
        """All clusters on the ways were asked since these ids were met: what is not known now is of none."""
        self._strangers |= set(ids) - self._names.keys()

    @property
    def nameless_clusters(self) -> Collection[ClusterName]:
        """Clusters on the ways whose id is not known."""
        return self._ways.clusters - set(self._names.values())

    def learn(self, asked: Iterable[int], paths: Mapping[int, Path], problems: Mapping[int, str]) -> None:
        """What the registry, read to its end after these ids were met, says of them. `problems`: of entries
        that cannot be read.
        """
        if len(self._producers) >= PRODUCERS_KEPT:
            self._producers.clear()
        self._unreadable = dict(problems)
        for producer_id in asked:
            self.unknown.discard(producer_id)
            if producer_id in problems:
                continue
            path = paths.get(producer_id, _BORN_HERE)
            number = self._number_of(path)
            if number is None:
                self._unreadable[producer_id] = f"there are more than {PATHS_MAX} different paths"
            else:
                self._producers[producer_id] = number

    def been(self, origin: int) -> Path:
        """Where records of this origin have been before they came to the source; empty for those that were
        born there.
        """
        return self._paths[origin]

    def path_of(self, origin: int) -> Path:
        """What is registered for producer ids of this origin at the destination."""
        return (*self._paths[origin], self._source)

    # ---- for `TopicOrigins`

    def origin_of(self, producer_id: int) -> int:
        """The number of the path. Raises OriginUnknownError, CorruptRecordsError."""
        number = self._producers.get(producer_id)
        if number is not None:
            return number
        self.unknown.add(producer_id)
        self._on_unknown()
        problem = self._unreadable.get(producer_id)
        if problem is not None:
            raise CorruptRecordsError(f"where batches of producer {producer_id} have been: {problem}")
        raise OriginUnknownError

    def came_back(self, producer_id: int) -> bool:
        """Whether records of a producer whose path is known came to the source from the destination."""
        return self.been(self._producers.get(producer_id, 0))[-1:] == (self._destination,)

    def carries(self, topic: str, origin: int) -> bool:
        """Whether records of `topic` that came to the source on this path go on.

        Raises OriginUnknownError.
        """
        path = self.path_of(origin)
        return self._destination not in path and self._is_its_way(topic, path)

    def _is_its_way(self, topic: str, path: Path) -> bool:
        """Nothing else is to bring them: `path` with the source is not the planned one, or the destination
        comes next on it.
        """
        names = self._names
        may_be_anew = len(self._ways.clusters) > 2  # both ends have told their ids in this run
        if may_be_anew and (nameless := set(path) - names.keys() - self._strangers):
            self.nameless |= nameless
            self._on_unknown()
            raise OriginUnknownError
        here, there = names.get(self._source), names.get(self._destination)
        first = next((index for index, each in enumerate(path) if each in names), len(path))
        travelled = tuple(names.get(each) for each in path[first:])
        if here is None or there is None or not travelled:
            return True
        origin = travelled[0]
        assert origin is not None
        planned = self._ways.path(topic, origin, here)
        onwards = self._ways.path(topic, origin, there)
        return planned != travelled or onwards is None or onwards == (*travelled, there)

    def _number_of(self, path: Path) -> int | None:
        number = self._numbers.get(path)
        if number is None and len(self._paths) < PATHS_MAX:
            number = self._numbers[path] = len(self._paths)
            self._paths.append(path)
        return number


class TopicOrigins:
    """The origins of one topic of the source (`intake.Origins`)."""

    __slots__ = ("_provenance", "_topic", "_verdicts")

    def __init__(self, provenance: Provenance, topic: str) -> None:
        self._provenance = provenance
        self._topic = topic
        self._verdicts: dict[int, bool] = {}

    def origin_of(self, header: BatchHeader) -> int | None:
        """See `intake.Origins`."""
        producer_id = header.producer_id
        origin = self._provenance.origin_of(producer_id) if producer_id >= 0 else 0
        verdict = self._verdicts.get(origin)
        if verdict is None:
            verdict = self._verdicts[origin] = self._provenance.carries(self._topic, origin)
        return origin if verdict else None

    def came_back(self, header: BatchHeader) -> bool:
        """See `intake.Origins`."""
        return self._provenance.came_back(header.producer_id)
