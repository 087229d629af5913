"""A flow of MirrorMaker 2 as a route, in the words of a topology file. Pure.

What a file leaves open is as MirrorMaker 2 has it where that says what is copied (topics, their settings,
access rules), and as routes have it where it says how (intervals, sizes, delivery).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from broker.settings import boolean, integer, long, string
from mirrormaker.importing.mirrors import Flow, Settings
from mirrormaker.importing.topics import read_patterns, read_topics
from mirrormaker.topology.model import Compression, Isolation, Start, TopicSelection

Document: TypeAlias = dict[str, object]

_UNCARRIED_BY_DEFAULT = (
    r"message\.timestamp\.difference\.max\.ms",
    r"unclean\.leader\.election\.enable",
    r"min\.insync\.replicas",
)
"""Beside those that no route carries."""
_GROUPS_EXCLUDED = (r"console-consumer-.*", r"connect-.*", r"__.*")
_INTERVAL_MS = (100, 3_600_000)
_WORKERS_MAX, _BUCKETS, _BUCKETS_EACH = 1024, 16, 4
_BYTES_ONLY = "ByteArrayConverter"
_CONVERTERS = ("key.converter", "value.converter", "header.converter")
_FILTERS = {
    "topic.filter.class": "DefaultTopicFilter",
    "group.filter.class": "DefaultGroupFilter",
    "config.property.filter.class": "DefaultConfigPropertyFilter",
}


def read_route(flow: Flow, aliases: Iterable[str]) -> Document:
    """The route; `aliases` are the names of all clusters."""
    settings = flow.settings
    for name in ("name", "connector.class", *_of_their_own(settings)):
        settings.text(name)
    route: Document = {"from": flow.source, "to": flow.target, "topics": read_topics(flow, aliases)}
    route |= _read_start(settings)
    route |= _read_delivery(settings)
    route |= _read_copying(settings)
    route["sync"] = _read_sync(settings)
    route |= _read_interval(settings, "refresh.topics.interval.seconds", "refresh_interval_ms")
    route |= _read_work(settings)
    if settings.read("emit.heartbeats.enabled", boolean()) is False:
        route["heartbeats"] = False
    return route


def selection_of(route: Document) -> TopicSelection:
    """The topics of a route that was read."""
    topics = route["topics"]
    assert isinstance(topics, dict)
    return TopicSelection(
        include=tuple(topics["include"]), exclude=tuple(topics.get("exclude", ())), name=topics["name"]
    )


def _of_their_own(settings: Settings) -> Iterable[str]:
    """Settings that say what is so anyway."""
    usual = {**dict.fromkeys(_CONVERTERS, _BYTES_ONLY), **_FILTERS}
    wordless = {
        "refresh.topics.enabled": "true",
        "emit.heartbeats.interval.seconds": "1",
        "producer.acks": "all",
    }
    for name, entry in settings.entries.items():
        if usual.get(name) == entry.text.rpartition(".")[2] or wordless.get(name) == entry.text:
            yield name


def _read_start(settings: Settings) -> Document:
    start = settings.read("consumer.auto.offset.reset", string(tuple(each.value for each in Start)))
    return {"start": start} if start == Start.LATEST.value else {}


def _read_delivery(settings: Settings) -> Document:
    support = settings.read("exactly.once.source.support", string(("disabled", "preparing", "enabled")))
    asked = settings.read("exactly.once.support", string(("requested", "required")))
    if support is None and asked == "requested":
        message = "whether records come exactly once is for Connect's workers to say: see `delivery`"
        settings.note("exactly.once.support", message)
    if support == "enabled" or asked == "required":
        return {"delivery": "exactly_once"}
    return {}


def _read_copying(settings: Settings) -> Document:
    found: Document = {}
    codecs = tuple(each.value for each in Compression if each is not Compression.PRESERVE)
    codec = settings.read("producer.compression.type", string(codecs))
    if codec is not None:
        found["compression"] = codec
        message = "batches with another codec are decoded for it; without `compression` they keep theirs"
        settings.note("producer.compression.type", message)
    isolation = settings.read("consumer.isolation.level", string(tuple(each.value for each in Isolation)))
    if isolation is not None:
        found["isolation"] = isolation
    return found


def _read_sync(settings: Settings) -> Document:
    excluded = read_patterns(settings, "config.properties.exclude", "config.properties.blacklist")
    patterns = _UNCARRIED_BY_DEFAULT if excluded is None else excluded
    sync: Document = {"config": [f"(?!({'|'.join(patterns)})$).*" if patterns else ".*"]}
    if settings.read("sync.topic.configs.enabled", boolean()) is False:
        sync["repair"] = ["topics", "partitions", "acls"]
        message = (
            "topics are made with the source's settings; what differs later is told, and left to `apply`"
        )
        settings.note("sync.topic.configs.enabled", message)
    sync["acls"] = settings.read("sync.topic.acls.enabled", boolean()) is not False
    include = read_patterns(settings, "groups")
    exclude = read_patterns(settings, "groups.exclude", "groups.blacklist")
    interval = _read_interval(settings, "sync.group.offsets.interval.seconds", "interval_ms")
    if settings.read("sync.group.offsets.enabled", boolean()):
        sync["groups"] = {
            "include": list(include or (".*",)),
            "exclude": list(_GROUPS_EXCLUDED if exclude is None else exclude),
            **interval,
            "rewinds": False,
        }
    else:
        message = "MirrorMaker 2 has a topic of checkpoints for them; here `sync.groups` carries groups"
        for name in ("groups", "groups.exclude", "groups.blacklist"):
            settings.note(name, f"left out: sync.group.offsets.enabled is not true. {message}")
    return sync


def _read_interval(settings: Settings, name: str, key: str) -> Document:
    """An interval of seconds, as near as there is one."""
    seconds = settings.read(name, long(0))
    if seconds is None:
        return {}
    low_ms, high_ms = _INTERVAL_MS
    interval_ms = min(max(seconds * 1000, low_ms), high_ms)
    if interval_ms != seconds * 1000:
        settings.note(name, f"is {interval_ms} ms here: from {low_ms} ms to an hour is what there is")
    return {key: interval_ms}


def _read_work(settings: Settings) -> Document:
    tasks = settings.read("tasks.max", integer(1))
    if tasks is None or tasks == 1:
        return {}
    workers = min(tasks, _WORKERS_MAX)
    told = f"{workers} processes of each daemon, which copy more than tasks do: fewer will often do"
    settings.note("tasks.max", told)
    buckets = min(max(_BUCKETS, workers * _BUCKETS_EACH), _WORKERS_MAX)
    return {**({"buckets": buckets} if buckets != _BUCKETS else {}), "resources": {"workers": workers}}
