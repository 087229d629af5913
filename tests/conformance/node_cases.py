"""Cases of the APIs between nodes: orders that are out of date, so that nothing comes of them."""

from __future__ import annotations

from broker.errors import ErrorCode
from broker.wire.messages.controlled_shutdown import ControlledShutdownRequest
from broker.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrTopicState
from broker.wire.messages.stop_replica import StopReplicaRequest, StopReplicaTopicState
from broker.wire.messages.update_metadata import UpdateMetadataRequest
from tests.conformance.scene import Scene

FORMER_EPOCH = 0
"""Controllers count from 1."""
MISSING_BROKER = 999


async def leader_and_isr_of_a_former_controller_is_refused(scene: Scene, version: int) -> None:
    states = [LeaderAndIsrTopicState(topic_name=scene.place.shelf, topic_id=scene.place.shelf_id)]
    request = LeaderAndIsrRequest(controller_id=1, controller_epoch=FORMER_EPOCH, topic_states=states)
    assert (await scene.ask(request, version)).error_code == ErrorCode.STALE_CONTROLLER_EPOCH


async def stop_replica_of_a_former_controller_is_refused(scene: Scene, version: int) -> None:
    states = [StopReplicaTopicState(topic_name=scene.place.shelf)]
    request = StopReplicaRequest(controller_id=1, controller_epoch=FORMER_EPOCH, topic_states=states)
    response = await scene.ask(request, version)
    assert (response.error_code, response.partition_errors) == (ErrorCode.STALE_CONTROLLER_EPOCH, [])


async def update_metadata_of_a_former_controller_is_refused(scene: Scene, version: int) -> None:
    request = UpdateMetadataRequest(controller_id=1, controller_epoch=FORMER_EPOCH)
    assert (await scene.ask(request, version)).error_code == ErrorCode.STALE_CONTROLLER_EPOCH


async def controlled_shutdown_of_an_unknown_broker_is_refused(scene: Scene, version: int) -> None:
    response = await scene.ask(ControlledShutdownRequest(broker_id=MISSING_BROKER), version)
    assert (response.error_code, response.remaining_partitions) == (ErrorCode.BROKER_NOT_AVAILABLE, [])
