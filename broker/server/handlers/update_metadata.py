"""UpdateMetadata: the controller tells what changed in the cluster."""

from __future__ import annotations

from broker.cluster.image import ImageUpdate
from broker.cluster.orders import update_of_metadata
from broker.errors import ErrorCode
from broker.server.request import RequestContext
from broker.server.services import Services
from broker.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse


async def handle(
    services: Services, context: RequestContext, request: UpdateMetadataRequest
) -> UpdateMetadataResponse:
    """Taken into the image, unless an older controller sent it. Groups forget deleted topics, and leaders
    take those out of their in-sync sets that are away.
    """
    refused = services.replicas.check_epochs(request.controller_epoch, request.broker_epoch)
    if refused is not ErrorCode.NONE:
        return UpdateMetadataResponse(error_code=refused)
    before = services.view.image.topics
    update = update_of_metadata(request)
    services.view.apply(update)
    _consider_absent(services, update)
    deleted = before.keys() - services.view.image.topics.keys()
    if deleted:
        for topic in deleted:
            services.topic_configs.forget(topic)
        await services.groups.on_topics_deleted(deleted)
    return UpdateMetadataResponse()


def _consider_absent(services: Services, update: ImageUpdate) -> None:
    for topic_partition, image in update.partitions.items():
        replica = services.replicas.get(topic_partition.topic, topic_partition.partition)
        if replica is not None and replica.machine.told_absent(image.offline):
            services.isr_changes.consider(replica)
