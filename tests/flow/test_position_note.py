"""The text beside a position: read as it was written, by versions before too."""

from __future__ import annotations

from uuid import UUID

import pytest

from broker.types import NO_TOPIC_ID, TopicId, TopicPartition
from mirrormaker.flow.lane_note import read_note as read_lanes
from mirrormaker.flow.position_note import Led, led_elsewhere, read_note, write_note
from mirrormaker.topology.model import PartitionPolicy

ID = TopicId(UUID(int=7))
LED = Led("jfk.flights", "a cluster")
LANES = '{"lanes":[3,5],"to":[["jfk.flights",0,2]]}'


@pytest.mark.parametrize("topic_id", [ID, NO_TOPIC_ID])
@pytest.mark.parametrize("note", ["", "12", LANES])
@pytest.mark.parametrize(
    "led",
    [None, Led("jfk.flights", "c"), Led("jfk.flights", None), Led("jfk.flights", "c", PartitionPolicy.KEY)],
)
def test_a_text_is_read_as_it_was_written(topic_id: TopicId, note: str, led: Led | None) -> None:
    found = read_note(write_note(topic_id, note, led))
    assert (found.note, found.led) == (note, led)
    assert found.is_of(topic_id)
    assert found.is_of(TopicId(UUID(int=8))) is (topic_id == NO_TOPIC_ID)


@pytest.mark.parametrize(
    ("text", "topic_id", "note"),
    [("", "", ""), (str(ID), str(ID), ""), ("- 12", "-", "12"), (f"{ID} {LANES}", str(ID), LANES)],
)
def test_texts_of_versions_before_say_nothing_of_where_copies_went(
    text: str, topic_id: str, note: str
) -> None:
    assert read_note(text) == (topic_id, note, None)


@pytest.mark.parametrize("text", ["set by hand", "- {", "- {]", "- 5 @", "- 5 @c", "- 5 a/b@c"])
def test_what_others_wrote_says_nothing_of_where_copies_went(text: str) -> None:
    assert read_note(text).led is None


def test_versions_before_pass_over_where_copies_go() -> None:
    """They take all that follows the id for the note."""
    note = write_note(ID, LANES, LED).partition(" ")[2]
    assert read_lanes(3, note) == read_lanes(3, LANES)
    assert read_lanes(3, write_note(ID, "", LED).partition(" ")[2]) is None


def test_copies_went_elsewhere_where_no_position_says_that_they_go_where_they_go_now() -> None:
    def text(topic: str, cluster_id: str | None = "c") -> str:
        return write_note(ID, "", Led(topic, cluster_id))

    texts = {
        TopicPartition("same", 0): text("to.same"),
        TopicPartition("renamed", 0): text("was.renamed"),
        TopicPartition("partly", 0): text("was.partly"),
        TopicPartition("partly", 1): text("to.partly"),
        TopicPartition("unsaid", 0): str(ID),
        TopicPartition("rebuilt", 0): text("to.rebuilt", "another"),
        TopicPartition("untold", 0): text("to.untold", None),
    }
    now = {each.topic: Led(f"to.{each.topic}", "c") for each in texts}
    found = led_elsewhere(texts, now)
    assert {topic: led.topic for topic, led in found.items()} == {
        "renamed": "was.renamed",
        "rebuilt": "to.rebuilt",
    }
