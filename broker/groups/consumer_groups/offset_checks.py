"""Who may commit and read the offsets of a consumer group: its members, at the epoch that they are at."""

from __future__ import annotations

from broker.errors import ErrorCode
from broker.groups.consumer_groups.image import GroupImage
from broker.groups.events import NO_GENERATION, NO_MEMBER_ID


def commit_error(image: GroupImage, epoch: int, member_id: str, *, knows_epochs: bool) -> ErrorCode:
    """Anybody while nobody is in it, then a member; one of the consumer protocol must use a version of the
    request that knows epochs.
    """
    if epoch < 0 and not len(image):
        return ErrorCode.NONE
    subscription = image.subscriptions.get(member_id)
    if subscription is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if not subscription.is_classic and not knows_epochs:
        return ErrorCode.UNSUPPORTED_VERSION
    return _epoch_error(image, epoch, member_id)


def transactional_commit_error(
    image: GroupImage, epoch: int, member_id: str, instance_id: str | None
) -> ErrorCode:
    """As `commit_error`; producers that do not say for which member they commit are let through (KIP-447)."""
    if epoch == NO_GENERATION and member_id == NO_MEMBER_ID and instance_id is None:
        return ErrorCode.NONE
    error = commit_error(image, epoch, member_id, knows_epochs=True)
    return ErrorCode.ILLEGAL_GENERATION if error is ErrorCode.STALE_MEMBER_EPOCH else error


def fetch_error(image: GroupImage, epoch: int, member_id: str | None) -> ErrorCode:
    """Anybody who does not claim to be a member, then only one that is."""
    if not member_id and epoch < 0:
        return ErrorCode.NONE
    if member_id is None or member_id not in image:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return _epoch_error(image, epoch, member_id)


def _epoch_error(image: GroupImage, epoch: int, member_id: str) -> ErrorCode:
    if epoch == image.assignment(member_id).epoch:
        return ErrorCode.NONE
    is_classic = image.subscriptions[member_id].is_classic
    return ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH
