from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.cluster.image import ClusterImage, ImageUpdate, PartitionImage
from broker.types import NO_LEADER, BrokerId, LeaderEpoch, TopicId, TopicPartition
from tests.cluster.scenes import T0, T1, ids, live

ONE = TopicId(UUID(int=1))
EMPTY = ClusterImage(cluster_id="c")


def image(leader: int, epoch: int = 0) -> PartitionImage:
    return PartitionImage(
        leader=BrokerId(leader),
        leader_epoch=LeaderEpoch(epoch),
        isr=ids(leader),
        replicas=ids(leader),
        partition_epoch=epoch,
        controller_epoch=1,
    )


def update(**changes: object) -> ImageUpdate:
    return ImageUpdate(controller_id=BrokerId(1), controller_epoch=1, **changes)  # type: ignore[arg-type]


def test_an_update_shows_in_every_lookup() -> None:
    after = EMPTY.apply(update(brokers=live(1), partitions={T0: image(1)}, topic_ids={"t": ONE}))
    topic = after.topic("t")
    assert topic is not None
    assert after.topic_of_id(ONE) is topic
    assert after.partition(T0) == image(1)
    assert after.partition(T1) is None
    assert after.brokers[BrokerId(1)].address() == ("127.0.0.1", 9001)
    assert after.brokers[BrokerId(1)].address("OTHER") is None
    assert (after.controller_id, after.cluster_id) == (1, "c")
    assert EMPTY.topics == {}


def test_an_update_leaves_the_rest_alone() -> None:
    before = EMPTY.apply(update(brokers=live(1), partitions={T0: image(1)}, topic_ids={"t": ONE}))
    after = before.apply(update(partitions={T1: image(NO_LEADER)}, topic_ids={"t": ONE}))
    assert after.partition(T0) == image(1)
    assert after.brokers == before.brokers
    found = after.partition(T1)
    assert found is not None
    assert not found.has_leader


def test_a_topic_goes_with_its_last_partition() -> None:
    before = EMPTY.apply(update(partitions={T0: image(1), T1: image(1)}, topic_ids={"t": ONE}))
    after = before.apply(update(removed=frozenset([T0]), topic_ids={"t": ONE}))
    assert after.topic("t") is not None
    assert after.apply(update(removed=frozenset([T1]))).topics == {}


def test_a_topic_made_anew_does_not_inherit_partitions() -> None:
    before = EMPTY.apply(update(partitions={T0: image(1), T1: image(1)}, topic_ids={"t": ONE}))
    two = TopicId(UUID(int=2))
    after = before.apply(update(partitions={T0: image(2)}, topic_ids={"t": two}))
    assert after.partition(T1) is None
    assert after.topic_of_id(ONE) is None
    assert after.topic_of_id(two) is not None


def test_a_full_update_drops_what_it_does_not_name() -> None:
    before = EMPTY.apply(update(partitions={T0: image(1)}, topic_ids={"t": ONE}))
    assert before.apply(update(full=True)).topics == {}


_partitions = st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 2))
_ids = {"a": TopicId(UUID(int=1)), "b": TopicId(UUID(int=2))}


@st.composite
def _updates(draw: st.DrawFn) -> ImageUpdate:
    changed = draw(st.dictionaries(_partitions, st.integers(1, 3).map(image), max_size=4))
    removed = draw(st.frozensets(_partitions, max_size=3)) - changed.keys()
    return update(
        partitions=changed,
        removed=removed,
        topic_ids=_ids,
        full=draw(st.booleans()),
        brokers=draw(st.none() | st.just(live(1)) | st.just(live(1, 2))),
    )


@given(first=_updates(), second=_updates(), third=_updates())
@settings(max_examples=100)
def test_merged_updates_have_the_effect_of_one_after_the_other(
    first: ImageUpdate, second: ImageUpdate, third: ImageUpdate
) -> None:
    base = EMPTY.apply(first)
    expected = base.apply(second).apply(third)
    got = base.apply(second.merged(third))
    assert got.topics == expected.topics
    assert got.brokers == expected.brokers
