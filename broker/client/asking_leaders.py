"""Questions about many partitions, each put to its leader, all leaders at once."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, NamedTuple, TypeVar

from broker.client.backoff import is_retriable
from broker.client.cluster import Cluster
from broker.client.partition_leaders import look_for_leaders
from broker.errors import BrokerError, RequestTimedOutError
from broker.types import TopicPartition

_ANSWER_TIMEOUT_MS = 10_000
"""How long one leader may keep those waiting who can do without its answer."""

Answer = TypeVar("Answer")


class Answers(NamedTuple, Generic[Answer]):
    """What was told, and of the other partitions why it was not."""

    found: dict[TopicPartition, Answer]
    failures: dict[TopicPartition, BrokerError]


Ask = Callable[[int, Mapping[TopicPartition, int]], Awaitable[Answers[Answer]]]
"""Puts the questions, each a number, to the node with that id. Raises BrokerError."""


async def ask_leaders(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    ask: Ask[Answer],
    *,
    refresh: bool,
    answer_timeout_ms: float | None = None,
) -> Answers[Answer]:
    """Ask every leader once. `refresh`: leaders may be others than known. A node gets as long for its answer
    as for any, if not `answer_timeout_ms`. Raises nothing that an answer of a cluster can cause.
    """
    try:
        leaders = await look_for_leaders(cluster, wanted, refresh=refresh)
    except BrokerError as error:
        return Answers({}, dict.fromkeys(wanted, error))
    by_leader: dict[int, dict[TopicPartition, int]] = defaultdict(dict)
    for partition, leader in leaders.known.items():
        by_leader[leader][partition] = wanted[partition]
    told = await asyncio.gather(
        *(_ask_within(answer_timeout_ms, ask, node_id, asked) for node_id, asked in by_leader.items()),
        return_exceptions=True,
    )
    answers: Answers[Answer] = Answers({}, {**leaders.missing})
    for asked, each in zip(by_leader.values(), told, strict=True):
        if isinstance(each, BrokerError):
            answers.failures.update(dict.fromkeys(asked, each))
        elif isinstance(each, BaseException):
            raise each
        else:
            answers.found.update(each.found)
            answers.failures.update(each.failures)
    return answers


async def ask_leaders_within(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], ask: Ask[Answer], *, timeout_ms: float
) -> Answers[Answer]:
    """Ask again for `timeout_ms` where a leader is not found or moves; a partition of which nothing is told
    holds back no other.
    """
    retries = cluster.retries(timeout_ms)
    answers: Answers[Answer] = Answers({}, {})
    missing = dict(wanted)
    is_again = False
    while missing:
        told = await ask_leaders(
            cluster, missing, ask, refresh=is_again, answer_timeout_ms=_ANSWER_TIMEOUT_MS
        )
        answers.found.update(told.found)
        answers.failures.update(told.failures)
        again = {partition: error for partition, error in told.failures.items() if is_retriable(error)}
        missing = {partition: wanted[partition] for partition in again}
        if missing:
            try:
                await retries.pause(next(iter(again.values())))
            except BrokerError:
                break
        is_again = True
    for partition in answers.found:
        answers.failures.pop(partition, None)
    return answers


async def _ask_within(
    timeout_ms: float | None, ask: Ask[Answer], node_id: int, asked: Mapping[TopicPartition, int]
) -> Answers[Answer]:
    try:
        async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
            return await ask(node_id, asked)
    except TimeoutError as error:
        raise RequestTimedOutError(f"node {node_id} does not answer") from error
