"""From a topology file to a checked `Topology`: every complaint at once, each with file, line and path."""

from __future__ import annotations

from pathlib import Path

from broker.types import HostPort
from mirrormaker.topology.document import Problems, Section, read_document
from mirrormaker.topology.model import (
    DEFAULT_TOPIC_TEMPLATE,
    ClusterName,
    ClusterSpec,
    Compression,
    CopyMode,
    Delivery,
    EmbeddedSpec,
    Resources,
    RouteName,
    RouteSpec,
    TopicSelection,
    Topology,
)
from mirrormaker.topology.security import read_security
from mirrormaker.topology.validate import check

DEFAULT_DATA_DIR = "./data"
_DEFAULT_RESOURCES = Resources()
_KIB, _GIB, _HOUR_MS = 1 << 10, 1 << 30, 3_600_000


def load_topology(file: Path) -> Topology:
    """Read and check `file`; a relative `data_dir` is taken from the file's own folder.

    Raises ConfigurationError with every problem, each as `FILE:LINE: PATH: MESSAGE`.
    """
    problems = Problems()
    document = read_document(file, problems)
    topology = _read_topology(document, file.resolve().parent, problems)
    for finding in check(topology):
        if not problems.covers(finding.path):
            problems.report(finding.path, finding.message)
    problems.raise_if_any(str(file))
    return topology


def _read_topology(document: Section, folder: Path, problems: Problems) -> Topology:
    clusters = _read_clusters(document, folder, problems)
    routes = tuple(_read_route(section) for section in document.sections("routes"))
    if any(True for _ in document.sections("pipelines")):
        document.report("pipelines", "pipelines are not supported: the list must be empty")
    data_dir = document.text("data_dir", DEFAULT_DATA_DIR)
    if "\0" in data_dir:
        document.report("data_dir", f"{data_dir!r} is not a path")
        data_dir = DEFAULT_DATA_DIR
    document.finish()
    return Topology(clusters=clusters, routes=routes, data_dir=(folder / data_dir).resolve())


def _read_clusters(document: Section, folder: Path, problems: Problems) -> dict[ClusterName, ClusterSpec]:
    section = document.section("clusters", required=True)
    if section is None:
        return {}
    if not section.keys():
        section.report("", "there are no clusters")
    return {
        ClusterName(name): _read_cluster(section, name, folder, problems)
        for name in section.keys()  # noqa: SIM118
    }


def _read_cluster(clusters: Section, name: str, folder: Path, problems: Problems) -> ClusterSpec:
    section = clusters.section(name)
    if section is None:
        return ClusterSpec(name=ClusterName(name), bootstrap=())
    embedded = _read_embedded(section)
    addresses = section.texts("bootstrap")
    bootstrap = tuple(
        address
        for index, text in enumerate(addresses)
        if (address := _read_address(text, f"{section.path_of('bootstrap')}[{index}]", problems))
    )
    zookeeper = section.text("zookeeper", "") or None
    security = read_security(section, folder)
    _check_location(section, embedded, addresses)
    section.finish()
    return ClusterSpec(
        name=ClusterName(name),
        bootstrap=embedded.bootstrap if embedded else bootstrap,
        zookeeper=zookeeper,
        embedded=embedded,
        security=security,
    )


def _read_embedded(section: Section) -> EmbeddedSpec | None:
    embedded = section.section("embedded")
    if embedded is None:
        return None
    spec = EmbeddedSpec(
        brokers=embedded.integer("brokers", 1, low=1, high=99),
        port=embedded.integer("port", low=1, high=65535),
    )
    embedded.finish()
    if spec.port + spec.brokers - 1 > 65535:
        embedded.report("port", f"{spec.brokers} consecutive ports from {spec.port} on go beyond 65535")
    return spec


def _read_address(text: str, path: str, problems: Problems) -> HostPort | None:
    if problems.covers(path):
        return None
    try:
        return HostPort.parse(text)
    except ValueError as error:
        problems.report(path, str(error))
        return None


def _check_location(section: Section, embedded: EmbeddedSpec | None, addresses: tuple[str, ...]) -> None:
    if "embedded" in section:
        for key in ("bootstrap", "zookeeper"):
            if key in section:
                section.report(key, "an embedded cluster has addresses of its own: leave this out")
        if "security" in section:
            section.report("security", "an embedded cluster has no secured listeners: leave this out")
    elif "bootstrap" not in section:
        section.report("", "says neither 'bootstrap' nor 'embedded'")
    elif not addresses:
        section.report("bootstrap", "names no address")


def _read_route(section: Section) -> RouteSpec:
    source, destination = section.text("from"), section.text("to")
    route = RouteSpec(
        name=RouteName(section.text("name", f"{source}-to-{destination}")),
        source=ClusterName(source),
        destination=ClusterName(destination),
        topics=_read_topics(section),
        delivery=Delivery(section.choice("delivery", _values(Delivery), Delivery.AT_LEAST_ONCE.value)),
        copy=CopyMode(section.choice("copy", _values(CopyMode), CopyMode.AUTO.value)),
        compression=Compression(
            section.choice("compression", _values(Compression), Compression.PRESERVE.value)
        ),
        buckets=section.integer("buckets", 16, low=1, high=1024),
        commit_interval_ms=section.integer("commit_interval_ms", 1000, low=10, high=_HOUR_MS),
        refresh_interval_ms=section.integer("refresh_interval_ms", 5000, low=100, high=_HOUR_MS),
        resources=_read_resources(section),
    )
    section.finish()
    return route


def _read_topics(section: Section) -> TopicSelection:
    topics = section.section("topics", required=True)
    if topics is None:
        return TopicSelection(include=())
    selection = TopicSelection(
        include=topics.texts("include", required=True),
        exclude=topics.texts("exclude"),
        name=topics.text("name", DEFAULT_TOPIC_TEMPLATE),
    )
    topics.finish()
    return selection


def _read_resources(section: Section) -> Resources:
    resources = section.section("resources")
    if resources is None:
        return _DEFAULT_RESOURCES
    default = _DEFAULT_RESOURCES
    read = Resources(
        buffer_bytes=resources.integer("buffer_bytes", default.buffer_bytes, low=_KIB, high=64 * _GIB),
        partition_buffer_bytes=resources.integer(
            "partition_buffer_bytes", default.partition_buffer_bytes, low=_KIB, high=64 * _GIB
        ),
        fetch_bytes=resources.integer("fetch_bytes", default.fetch_bytes, low=_KIB, high=_GIB),
        fetch_partition_bytes=resources.integer(
            "fetch_partition_bytes", default.fetch_partition_bytes, low=_KIB, high=_GIB
        ),
        produce_bytes=resources.integer("produce_bytes", default.produce_bytes, low=_KIB, high=_GIB),
        requests_in_flight=resources.integer(
            "requests_in_flight", default.requests_in_flight, low=1, high=1000
        ),
    )
    resources.finish()
    return read


def _values(kind: type[Delivery] | type[CopyMode] | type[Compression]) -> list[str]:
    return [member.value for member in kind]
