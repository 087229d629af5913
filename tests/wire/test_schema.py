"""What every declared structure can do, and how its values are laid out, lost and refused."""

from __future__ import annotations

from uuid import UUID

import pytest

from broker.errors import WireError
from broker.types import Buffer
from broker.wire.message import Message
from broker.wire.messages.fetch import FetchRequest, FetchResponse, PartitionData, ReplicaState
from broker.wire.messages.metadata import MetadataResponsePartition
from broker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from broker.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from broker.wire.schema import (
    ALL_VERSIONS,
    NO_VERSIONS,
    Struct,
    VersionRange,
    array,
    float64,
    int8,
    int16,
    int32,
    nested,
    record_bytes,
    string,
    uuid,
)


class Point(Struct):
    x: int = int32()
    label: str | None = string("1+", nullable="1+", default=None)


class Drawing(Message, versions="0-3", flexible="2+"):
    points: list[Point] = array(Point)
    weights: list[int] | None = array(int16, nullable="1+")
    origin: Point | None = nested(Point, "1+", nullable="2+", default=None)
    scale: float = float64("1+", default=1.0, ignorable=True)
    strict: int = int8("1+", default=7)
    ident: UUID = uuid("3+", tag=0)
    shade: Point = nested(Point, "2+", tag=3)
    names: list[str] = array(string, "2+", tag=1)
    raw: Buffer | None = record_bytes(nullable="0+")


def test_fields_that_are_not_given_have_their_defaults() -> None:
    request = FetchRequest(max_wait_ms=5)
    assert (request.max_wait_ms, request.max_bytes, request.replica_id) == (5, 0x7FFFFFFF, -1)
    assert (request.cluster_id, request.rack_id, request.topics) == (None, "", [])
    assert request.replica_state == ReplicaState(replica_id=-1, replica_epoch=-1)


def test_lists_and_structures_are_not_shared_between_instances() -> None:
    one, other = Drawing(), Drawing()
    one.points.append(Point())
    one.shade.x = 5
    assert other.points == []
    assert other.shade.x == 0
    assert Drawing(points=None).points is None


def test_an_unknown_field_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="colour"):
        Point(colour="red")
    with pytest.raises(AttributeError):
        Point().colour = "red"  # type: ignore[attr-defined]
    assert not hasattr(ProduceRequest(), "__dict__")


def test_equality_goes_by_type_and_fields() -> None:
    assert Point(x=1) == Point(x=1)
    assert Point(x=1) != Point(x=2)
    assert Point() != ReplicaState()
    assert MetadataResponsePartition(isr_nodes=[1, 2]) == MetadataResponsePartition(isr_nodes=(1, 2))
    assert Drawing(weights=None) != Drawing(weights=[])
    with pytest.raises(TypeError):
        hash(Point())


def test_the_readable_form_names_the_fields_and_hides_bytes() -> None:
    assert repr(Point(x=3)) == "Point(x=3, label=None)"
    assert repr(PartitionProduceData(records=b"abc")) == "PartitionProduceData(index=0, records=<3 bytes>)"
    assert repr(PartitionProduceData()) == "PartitionProduceData(index=0, records=None)"
    assert "secret" not in repr(SaslAuthenticateRequest(auth_bytes=b"secret"))


@pytest.mark.parametrize(
    ("text", "versions"),
    [("3+", VersionRange(3, 0x7FFF)), ("0-7", VersionRange(0, 7)), ("2", VersionRange(2, 2))],
)
def test_version_ranges_are_read_as_the_protocol_writes_them(text: str, versions: VersionRange) -> None:
    assert VersionRange.parse(text) == versions
    assert VersionRange.parse("none") == NO_VERSIONS
    assert 5 in ALL_VERSIONS
    assert 5 not in NO_VERSIONS
    with pytest.raises(ValueError, match="invalid literal"):
        VersionRange.parse("newest")


def test_a_value_that_the_version_would_lose_is_refused() -> None:
    with pytest.raises(WireError, match=r"Drawing\.strict cannot be sent in version 0"):
        Drawing(strict=1).encode(0)
    with pytest.raises(WireError, match=r"Point\.label"):
        Drawing(points=[Point(label="p")]).encode(0)
    with pytest.raises(WireError, match=r"Drawing\.origin"):
        Drawing(origin=Point()).encode(0)
    with pytest.raises(WireError, match=r"Drawing\.shade"):
        Drawing(origin=Point(), shade=Point(x=1)).encode(1)
    with pytest.raises(WireError, match=r"Drawing\.names"):
        Drawing(origin=Point(), names=["n"]).encode(1)


def test_a_value_that_may_be_ignored_is_dropped() -> None:
    assert Drawing.decode(Drawing(scale=2.0).encode(0), 0).scale == 1.0
    assert FetchRequest.decode(FetchRequest(rack_id="a").encode(10), 10).rack_id == ""


@pytest.mark.parametrize(
    ("drawing", "version"),
    [
        (Drawing(weights=None), 0),
        (Drawing(points=None), 3),
        (Drawing(weights=[1 << 15]), 3),
        (Drawing(weights=["x"]), 3),
        (Drawing(strict=300), 3),
        (Drawing(scale=10**400), 3),
        (Drawing(points=[Point(label=5)]), 3),
        (Drawing(points=[Point(label="\ud800")]), 3),
        (Drawing(points=[Point(label="x" * 40_000)], origin=Point()), 1),
        (Drawing(points=[Point(label="x" * 40_000)]), 3),
        (Drawing(points=[None]), 3),
        (Drawing(shade=None), 3),
        (Drawing(raw=5), 3),
        (Drawing(raw="text"), 3),
    ],
)
def test_a_value_that_its_field_cannot_hold_is_refused(drawing: Drawing, version: int) -> None:
    with pytest.raises(WireError, match=r"Drawing|string of 40000 bytes"):
        drawing.encode(version)


def test_a_flexible_message_is_laid_out_as_the_protocol_says() -> None:
    drawing = Drawing(
        points=[Point(x=1, label="a")],
        weights=[2],
        origin=Point(x=3),
        ident=UUID(int=9),
        shade=Point(x=4),
        names=["n", ""],
        raw=b"rec",
    )
    expected = bytes.fromhex(
        "02 00000001 02 61 00"  # points: count + 1, x, label, no tags
        "02 0002"  # weights
        "01 00000003 00 00"  # origin: present, x, null label, no tags
        "3ff0000000000000 07"  # scale, strict
        "04 726563"  # raw
        "03"  # three tagged fields, by tag
        "00 10" + "00" * 15 + "09"
        "01 04 03 02 6e 01"
        "03 06 00000004 00 00"
    )
    assert drawing.encode(3) == expected
    assert Drawing.decode(expected, 3) == drawing
    assert drawing.encode_parts(3)[1] == b"rec"


def test_an_older_message_is_laid_out_as_the_protocol_says() -> None:
    drawing = Drawing(points=[Point(x=1)], weights=[2], raw=None)
    expected = bytes.fromhex("00000001 00000001 00000001 0002 ffffffff")
    assert drawing.encode(0) == expected
    assert Drawing.decode(expected, 0) == drawing


@pytest.mark.parametrize(
    "tags",
    [
        "01 00 0f" + "00" * 15,  # a UUID of 15 bytes
        "01 00 11" + "00" * 17,
        "01 01 02 02 02",  # a name that runs out of its section
        "02 05 01 00",  # fewer fields than announced
        "01 05 7f 00",  # an unknown field longer than the message
        "ff ff ff ff ff 7f",  # a count of six bytes
        "ff ff ff ff 0f",  # a count above 2^31-1
    ],
)
def test_a_garbled_section_of_tagged_fields_is_refused(tags: str) -> None:
    start = Drawing(origin=Point()).encode(3)[:-1]
    assert Drawing.decode(start + b"\0", 3) == Drawing(origin=Point())
    with pytest.raises(WireError):
        Drawing.decode(start + bytes.fromhex(tags), 3)


def test_unknown_tagged_fields_are_skipped() -> None:
    start = Drawing().encode(3)[:-1]
    many = bytes.fromhex("80 02") + b"".join(bytes([40 + number % 50, 1, 0]) for number in range(256))
    for tags in (bytes.fromhex("01 28 03 616263"), bytes.fromhex("01 ff7f 00"), many):
        assert Drawing.decode(start + tags, 3) == Drawing()


def test_a_count_beyond_the_bytes_left_makes_no_elements() -> None:
    with pytest.raises(WireError, match="points cannot be in"):
        Drawing.decode(bytes.fromhex("7fffffff") + bytes(100), 0)
    with pytest.raises(WireError, match="weights cannot be in"):
        Drawing.decode(bytes.fromhex("00000000 7fffffff") + bytes(100), 0)
    with pytest.raises(WireError, match="cannot be in"):
        FetchResponse.decode(bytes.fromhex("00000000 0000 00000000 ffffffff07") + bytes(100), 12)


@pytest.mark.parametrize("length", [-2, -0x80000000])
def test_negative_lengths_other_than_null_are_refused(length: int) -> None:
    raw = length.to_bytes(4, "big", signed=True)
    for encoded in (raw, bytes(4) + raw, bytes(8) + raw):
        with pytest.raises(WireError, match="length"):
            Drawing.decode(encoded + bytes(20), 0)


def test_null_is_refused_where_the_version_has_none() -> None:
    with pytest.raises(WireError, match="points has the length -1"):
        Drawing.decode(bytes.fromhex("ffffffff ffffffff ffffffff"), 0)
    with pytest.raises(WireError, match="points has the length -1"):
        Drawing.decode(bytes(30), 2)
    with pytest.raises(WireError, match="weights has the length -1"):
        Drawing.decode(bytes.fromhex("00000000 ffffffff ffffffff"), 0)


def test_empty_records_are_no_part_and_null_stays_null() -> None:
    request = ProduceRequest(
        topic_data=[
            TopicProduceData(
                name="t",
                partition_data=[
                    PartitionProduceData(index=0, records=b""),
                    PartitionProduceData(index=1, records=None),
                    PartitionProduceData(index=2, records=b"x"),
                ],
            )
        ]
    )
    for version in (3, 9):
        parts = request.encode_parts(version)
        assert parts[1] == b"x"
        decoded = ProduceRequest.decode(b"".join(parts), version)
        assert [data.records for data in decoded.topic_data[0].partition_data] == [b"", None, b"x"]


def test_a_fetch_partition_decodes_with_defaults_of_its_own() -> None:
    encoded = FetchResponse.decode(FetchResponse().encode(12), 12)
    assert encoded == FetchResponse()
    one, other = PartitionData(), PartitionData()
    one.current_leader.leader_id = 3
    assert other.current_leader.leader_id == -1
