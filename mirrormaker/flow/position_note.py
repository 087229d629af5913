"""The text that a route's group keeps beside a position. Pure.

    ID              id of the topic that the position is in, `-` where the source does not tell
    ID NOTE         and what the route's delivery wants to be remembered (`lane_note`)
    ID NOTE LED     and where copies go, as TOPIC@CLUSTER ID, or TOPIC/POLICY@CLUSTER ID where they are spread
                    over its partitions; the note is `-` where there is none

A note that is JSON has it as "led" instead. Versions that know of none pass over it in either place, and
whoever moves a position with another tool takes it away: then nobody knows where copies went.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from broker.types import NO_TOPIC_ID, TopicId, TopicPartition
from mirrormaker.flow.kept_view import decode_document, encode_document
from mirrormaker.topology.model import PartitionPolicy

NOTHING = "-"
_SPREADS = {"": PartitionPolicy.SAME, **{each.value: each for each in PartitionPolicy}}


class Led(NamedTuple):
    """Where the copies of a topic go."""

    topic: str
    cluster_id: str | None
    """None: the cluster tells none."""
    spread: PartitionPolicy = PartitionPolicy.SAME
    """How they are shared out over the topic's partitions."""

    def is_at(self, other: Led) -> bool:
        """Whether that is the same place, as far as clusters tell."""
        same = None in (self.cluster_id, other.cluster_id) or self.cluster_id == other.cluster_id
        return same and self.topic == other.topic

    @property
    def text(self) -> str:
        """As it is stored."""
        spread = "" if self.spread is PartitionPolicy.SAME else f"/{self.spread.value}"
        return f"{self.topic}{spread}@{self.cluster_id or ''}"


class PositionNote(NamedTuple):
    """What a text says."""

    topic_id: str
    note: str
    led: Led | None

    def is_of(self, topic_id: TopicId) -> bool:
        """Whether the position counts for this topic: not when it was deleted and created again since."""
        return topic_id == NO_TOPIC_ID or self.topic_id in ("", NOTHING, str(topic_id))

    def names(self, topic_id: TopicId) -> bool:
        """Whether it says that the position is in this topic, and the source tells which it is."""
        return topic_id != NO_TOPIC_ID and self.topic_id == str(topic_id)


def write_note(topic_id: TopicId, note: str, led: Led | None) -> str:
    """The text; nothing where there is nothing to say."""
    told = "" if topic_id == NO_TOPIC_ID else str(topic_id)
    if led is None:
        return f"{told or NOTHING} {note}" if note else told
    if note.startswith("{"):
        note = encode_document({**decode_document(note.encode()), "led": led.text}).decode()
        return f"{told or NOTHING} {note}"
    return f"{told or NOTHING} {note or NOTHING} {led.text}"


def read_note(text: str) -> PositionNote:
    """What the text says, also one that others wrote."""
    topic_id, _, rest = text.partition(" ")
    if rest.startswith("{"):
        return _read_json(topic_id, rest)
    note, _, led = rest.partition(" ")
    return PositionNote(topic_id, "" if note == NOTHING else note, _led_in(led))


def led_elsewhere(texts: Mapping[TopicPartition, str], led: Mapping[str, Led]) -> dict[str, Led]:
    """Topics whose copies went elsewhere than they are `led` now, by the texts beside their positions, and
    none of them there; each with one such place.
    """
    found: dict[str, Led] = {}
    here: set[str] = set()
    for source, text in sorted(texts.items()):
        was, now = read_note(text).led, led.get(source.topic)
        if was is None or now is None:
            continue
        if was.is_at(now):
            here.add(source.topic)
        else:
            found.setdefault(source.topic, was)
    return {topic: was for topic, was in found.items() if topic not in here}


def _read_json(topic_id: str, note: str) -> PositionNote:
    try:
        document = dict(decode_document(note.encode()))
    except ValueError:
        return PositionNote(topic_id, note, None)
    led = document.pop("led", None)
    if not isinstance(led, str):
        return PositionNote(topic_id, note, None)
    return PositionNote(topic_id, encode_document(document).decode(), _led_in(led))


def _led_in(text: str) -> Led | None:
    to, at, cluster_id = text.partition("@")
    topic, _, spread = to.partition("/")
    if not topic or not at or spread not in _SPREADS:
        return None
    return Led(topic, cluster_id or None, _SPREADS[spread])
