from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.cluster.image import UNKNOWN_EPOCH, ImageUpdate, PartitionImage
from broker.cluster.orders import (
    BrokerOrders,
    RoleOrder,
    leader_and_isr_request,
    refused_stops,
    stop_replica_request,
    update_metadata_request,
    update_of_metadata,
)
from broker.errors import ErrorCode
from broker.types import BrokerId, LeaderEpoch, TopicId, TopicPartition
from broker.wire.messages.leader_and_isr import LeaderAndIsrRequest
from broker.wire.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)
from broker.wire.messages.update_metadata import UpdateMetadataRequest
from tests.cluster.scenes import T0, T1, T2, ids, live

ONE = TopicId(UUID(int=1))
DELETED = "deleted"


def image(leader: int, *, epoch: int = 3) -> PartitionImage:
    return PartitionImage(
        leader=BrokerId(leader),
        leader_epoch=LeaderEpoch(epoch),
        isr=ids(leader),
        replicas=ids(1, 2),
        partition_epoch=7,
        controller_epoch=5,
        offline=ids(2),
    )


def role(leader: int, *, epoch: int = 3, is_new: bool = False) -> RoleOrder:
    return RoleOrder(topic_id=ONE, image=image(leader, epoch=epoch), is_new=is_new)


def test_roles_travel_whole() -> None:
    orders = BrokerOrders(roles={T1: role(1), T0: role(2, is_new=True)}, full_roles=True)
    sent = leader_and_isr_request(
        orders,
        controller_id=BrokerId(1),
        controller_epoch=5,
        broker_epoch=99,
        brokers=live(1, 2),
        listener="PLAINTEXT",
    )
    request = LeaderAndIsrRequest.decode(sent.encode(7), 7)
    assert (request.controller_id, request.controller_epoch, request.broker_epoch) == (1, 5, 99)
    [topic] = request.topic_states
    assert (topic.topic_name, topic.topic_id) == ("t", ONE)
    first, second = topic.partition_states
    assert (first.partition_index, first.leader, first.is_new) == (0, 2, True)
    assert (second.leader_epoch, second.partition_epoch, second.controller_epoch) == (3, 7, 5)
    assert (list(second.isr), list(second.replicas)) == ([1], [1, 2])
    assert [(leader.broker_id, leader.port) for leader in request.live_leaders] == [(1, 9001), (2, 9002)]


def test_an_image_update_comes_out_of_the_wire_as_it_went_in() -> None:
    update = ImageUpdate(
        controller_id=BrokerId(1),
        controller_epoch=5,
        brokers=live(1, 2, epoch_1=UNKNOWN_EPOCH, epoch_2=UNKNOWN_EPOCH),
        partitions={T0: image(1), T1: image(-1)},
        topic_ids={"t": ONE},
        removed=frozenset([T2]),
        full=True,
    )
    sent = update_metadata_request(update, broker_epoch=99)
    received = UpdateMetadataRequest.decode(sent.encode(8), 8)
    assert received.broker_epoch == 99
    assert update_of_metadata(received) == update


def test_deletions_travel_with_an_epoch_above_every_check() -> None:
    sent = stop_replica_request(
        BrokerOrders(deletions=frozenset({T0, T1})),
        controller_id=BrokerId(1),
        controller_epoch=5,
        broker_epoch=99,
    )
    request = StopReplicaRequest.decode(sent.encode(4), 4)
    [topic] = request.topic_states
    got = [(s.partition_index, s.leader_epoch, s.delete_partition) for s in topic.partition_states]
    assert got == [(0, -2, True), (1, -2, True)]


def test_a_replica_that_is_not_there_counts_as_stopped() -> None:
    errors = {0: ErrorCode.NONE, 1: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 2: ErrorCode.KAFKA_STORAGE_ERROR}
    response = StopReplicaResponse(
        partition_errors=[
            StopReplicaPartitionError(topic_name="t", partition_index=index, error_code=error)
            for index, error in errors.items()
        ]
    )
    assert refused_stops(response) == {T2}


def test_a_later_role_replaces_an_earlier_deletion_and_the_other_way_round() -> None:
    roles, deletions = BrokerOrders(roles={T0: role(1)}), BrokerOrders(deletions=frozenset({T0}))
    assert roles.merged(deletions) == deletions
    assert deletions.merged(roles) == roles


def test_a_new_partition_stays_new_when_its_first_order_was_not_delivered() -> None:
    merged = BrokerOrders(roles={T0: role(1, is_new=True)}).merged(BrokerOrders(roles={T0: role(2, epoch=4)}))
    assert merged.roles[T0] == role(2, epoch=4, is_new=True)


_tps = st.sampled_from([T0, T1, T2])


@st.composite
def _orders(draw: st.DrawFn) -> BrokerOrders:
    deletions = draw(st.frozensets(_tps, max_size=2))
    roles = draw(st.dictionaries(_tps, st.integers(1, 2).map(role), max_size=2))
    return BrokerOrders(
        roles={tp: order for tp, order in roles.items() if tp not in deletions},
        full_roles=draw(st.booleans()),
        deletions=deletions,
    )


def _effect(orders: list[BrokerOrders]) -> dict[TopicPartition, object]:
    """What a broker that obeys one set of orders after the other does with each partition in the end."""
    doing: dict[TopicPartition, object] = {}
    for order in orders:
        if order.full_roles:
            doing = {tp: done for tp, done in doing.items() if done is DELETED}
        doing |= order.roles
        doing |= dict.fromkeys(order.deletions, DELETED)
    return doing


@given(st.lists(_orders(), min_size=2, max_size=5))
@settings(max_examples=100)
def test_merged_orders_have_the_effect_of_one_after_the_other(orders: list[BrokerOrders]) -> None:
    merged = orders[0]
    for later in orders[1:]:
        merged = merged.merged(later)
    assert _effect([merged]) == _effect(orders)
