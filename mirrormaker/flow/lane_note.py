"""What a group stores beside its position of a partition, so that nothing is sent again. Pure.

    N       the destination has everything before N; all lanes go on at the position (at most once)
    {...}   JSON, where lanes are not equally far: "lanes": [N, ...] that they go on at, the least of them the
            position; "to": [[TOPIC, PARTITION, COUNT], ...] that they lead to, partitions from that one on;
            "there": [N, ...] before which they have everything, where that is less; "former", "spread": see
            `positions`

A note counts with the position that it was stored with: whoever moves that means all lanes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from broker.types import TopicPartition
from mirrormaker.flow.kept_view import decode_document, encode_document
from mirrormaker.flow.positions import Place, place_in, value_of
from mirrormaker.flow.transaction_steps import LanePositions
from mirrormaker.topology.model import PartitionPolicy

NOTE_BYTES_MAX = 3_500
"""Brokers take 4096 unless told otherwise (`offset.metadata.max.bytes`), the topic's id included."""


class LaneNote(NamedTuple):
    """Where lanes stand that are not all at the same position, or were not while a topic had others."""

    place: Place
    there: LanePositions

    def text(self) -> str:
        """The note."""
        value = value_of("", self.place)
        kept: dict[str, object] = {
            "lanes": list(self.place.lanes),
            "to": list(_runs(self.place.destinations)),
        }
        if self.there != self.place.lanes:
            kept["there"] = list(self.there)
        kept |= {each: value[each] for each in ("former", "spread") if each in value}
        return encode_document(kept).decode()

    def on(self, destinations: Sequence[TopicPartition], spread: PartitionPolicy) -> Place:
        """Where lanes go on that lead there now, and get records so."""
        return place_in(value_of("", self.place), destinations, spread)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrears:
    """What lanes lack of what lies before where they go on."""

    first: int
    next: int
    count: int
    """Source offsets that one of them may lack."""


def note_of(place: Place, there: LanePositions) -> str | None:
    """What is stored beside the least of the lanes' positions; None: it would be too long."""
    note = str(min(there)) if _is_even(place) else LaneNote(place, there).text()
    return note if len(note) <= NOTE_BYTES_MAX else None


def uneven_note(place: Place) -> str:
    """The same where lanes have everything before where they go on; empty, where the position says it all, or
    a note would be too long: then the lanes that are further get something again.
    """
    return "" if _is_even(place) else note_of(place, place.lanes) or ""


def _is_even(place: Place) -> bool:
    return len(set(place.lanes)) == 1 and all(each.end <= place.lanes[0] for each in place.former)


def noted_place(
    position: int, note: str, destinations: Sequence[TopicPartition], spread: PartitionPolicy
) -> Place | None:
    """Where lanes that lead there, and get records so, go on by what the group has stored; None: all at the
    position.
    """
    lanes = read_note(position, note)
    return None if lanes is None else lanes.on(destinations, spread)


def read_note(position: int, note: str) -> LaneNote | None:
    """None: it says nothing of lanes."""
    try:
        value = decode_document(note.encode())
        to = [TopicPartition(topic, first + n) for topic, first, count in value["to"] for n in range(count)]
        spread = PartitionPolicy(value.get("spread", PartitionPolicy.SAME))
        place = place_in({**value, "position": position, "to": [list(each) for each in to]}, to, spread)
        there = tuple(map(int, value.get("there", place.lanes)))
    except (ValueError, TypeError, KeyError):
        return None
    if min(place.lanes, default=-1) != position or not len(to) == len(place.lanes) == len(there):
        return None
    return LaneNote(place, there)


def there_in(position: int, note: str) -> LanePositions | None:
    """Before which each lane had everything; one for all of them where the note names none. None: it does not
    say.
    """
    if note.isdecimal():
        return (int(note),)
    lanes = read_note(position, note)
    return None if lanes is None else lanes.there


def arrears_in(position: int, note: str) -> Arrears | None:
    """None: the destination had everything, or the note does not say."""
    if note.isdecimal():
        return arrears((position,), (int(note),))
    lanes = read_note(position, note)
    return None if lanes is None else arrears(lanes.place.lanes, lanes.there)


def arrears(lanes: LanePositions, there: LanePositions) -> Arrears | None:
    """Of lanes that go on there, and have everything before `there`; None: they lack nothing."""
    stretches = sorted(each for each in zip(there, lanes, strict=True) if each[0] < each[1])
    if not stretches:
        return None
    count, end = 0, 0
    for first, following in stretches:
        count += max(following - max(first, end), 0)
        end = max(end, following)
    return Arrears(first=stretches[0][0], next=end, count=count)


def _runs(destinations: Sequence[TopicPartition]) -> Iterator[tuple[str, int, int]]:
    """Topic, first partition and count of those that follow each other."""
    topic, first, count = destinations[0].topic, destinations[0].partition, 0
    for each in destinations:
        if each != (topic, first + count):
            yield topic, first, count
            topic, first, count = each.topic, each.partition, 0
        count += 1
    yield topic, first, count
