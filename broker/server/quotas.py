"""What clients used up lately, and for how long they are held back.

Bytes and request time are rates over windows, changes of topics a token bucket (KIP-599). Clients that a
quota tells apart have a meter each, those that share one (all clients of a user) share the meter too. A
client that exceeded a quota is told to wait, and its connection is muted for as long. `in_force` is False
while no quota exists: then nothing is measured. Owned by the event loop.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from broker.cluster.client_quotas import (
    ROOTS,
    Component,
    Entity,
    EntityType,
    Quota,
    QuotaTable,
    entity_at,
    quota_paths,
    read_quotas,
)
from broker.cluster.entity_configs import EntityConfigs
from broker.errors import ErrorCode, ProtocolError
from broker.rates import RateWindows, TokenBucket, WindowedRate
from broker.telemetry import logger

log = logger("quotas")

METERS_MAX = 10_000
"""Meters of each kind that are kept; of more the oldest is forgotten, and its client starts anew."""
_PERCENT_OF_NANOSECOND = 100 / 1e9


@dataclass(slots=True, kw_only=True)
class Meter:
    """One quota of one client, or of several that share it."""

    rate: WindowedRate
    bound: float

    def record(self, amount: float, now_ms: int) -> int:
        """Add what was used; how long to wait because of it, in ms."""
        self.rate.record(amount, now_ms)
        return self.rate.throttle_ms(self.bound, now_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLimits:
    """What limits one client; None: nothing does."""

    produce: Meter | None
    fetch: Meter | None
    request: Meter | None
    mutations: TokenBucket | None

    @property
    def any(self) -> bool:
        return bool(self.produce or self.fetch or self.request or self.mutations)


class Quotas:
    """The quotas of the cluster and this node's meters for them."""

    def __init__(
        self,
        windows: RateWindows,
        now_ms: Callable[[], int],
        *,
        mutation_windows: RateWindows | None = None,
        nanoseconds: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self.nanoseconds = nanoseconds
        """The clock that request time is measured by."""
        self._mutation_windows = mutation_windows or windows
        self.table = QuotaTable()
        self.in_force = False
        self._windows = windows
        self._now_ms = now_ms
        self._limits: OrderedDict[tuple[str, str], ClientLimits] = OrderedDict()
        self._meters: OrderedDict[tuple[Quota, Entity], Meter] = OrderedDict()
        self._buckets: OrderedDict[Entity, tuple[float, TokenBucket]] = OrderedDict()

    async def load(self, configs: EntityConfigs) -> None:
        """Read all quotas. Raises CoordinationError."""
        for path in await quota_paths(configs):
            await self.refresh(configs, path)

    def followers(self, configs: EntityConfigs) -> dict[str, Callable[[str], Awaitable[None]]]:
        """Whom to tell of changes, by the root of the path that changed."""

        def follower(root: str) -> Callable[[str], Awaitable[None]]:
            return lambda name: self.refresh(configs, f"{root}/{name}")

        return {root: follower(root) for root in ROOTS}

    async def refresh(self, configs: EntityConfigs, path: str) -> None:
        """Read the quotas of one entity again; while they cannot be read the last ones hold. Raises
        CoordinationError.
        """
        entity = entity_at(path)
        if entity is None:
            log.warning("quota_change_ignored", entity=path)
            return
        quotas = await read_quotas(configs, path)
        if quotas is None:
            return
        self.table.set(entity, quotas)
        self.in_force = self.table.limits_clients
        self._limits.clear()

    def of(self, user: str, client_id: str) -> ClientLimits:
        """What limits a client."""
        key = (user, client_id)
        limits = self._limits.get(key)
        if limits is None:
            limits = self._limits[key] = ClientLimits(
                produce=self._meter(Quota.PRODUCER_BYTE_RATE, user, client_id),
                fetch=self._meter(Quota.CONSUMER_BYTE_RATE, user, client_id),
                request=self._meter(Quota.REQUEST_PERCENTAGE, user, client_id),
                mutations=self._bucket(user, client_id),
            )
            if len(self._limits) > METERS_MAX:
                self._limits.popitem(last=False)
        else:
            self._limits.move_to_end(key)
        return limits

    def fetch_size_max(self, meter: Meter) -> int:
        """Bytes that a fetch may return without exceeding the quota by itself."""
        return max(1, int(meter.bound * self._windows.whole_ms / 1000))

    def record_fetch(self, meter: Meter, size: int) -> int:
        """As `Meter.record`, but what must wait is not counted: it is not sent.

        A response that is too large for any window passes when nothing was sent lately.
        """
        now_ms = self._now_ms()
        was_idle = meter.rate.is_empty(now_ms)
        throttle_ms = meter.record(size, now_ms)
        if throttle_ms and not was_idle:
            meter.rate.record(-size, now_ms)
            return throttle_ms
        return 0

    def record_bytes(self, meter: Meter, size: int) -> int:
        """Count produced bytes; how long to wait because of them, in ms."""
        return meter.record(size, self._now_ms())

    def record_time(self, meter: Meter, nanoseconds: int) -> int:
        """Count time of the event loop, of which 100 % is all; how long to wait, one window at most."""
        throttle_ms = meter.record(nanoseconds * _PERCENT_OF_NANOSECOND, self._now_ms())
        return min(throttle_ms, self._windows.size_ms)

    def spend_mutations(self, user: str, client_id: str, count: int, *, is_strict: bool) -> None:
        """Count partitions that are about to be made or removed.

        Raises ProtocolError THROTTLING_QUOTA_EXCEEDED where the client understands that and nothing is left.
        """
        bucket = self.of(user, client_id).mutations if self.in_force else None
        if bucket is None:
            return
        now_ms = self._now_ms()
        if is_strict and bucket.throttle_ms(now_ms):
            raise ProtocolError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED, "the quota controller_mutation_rate is used up"
            )
        bucket.spend(count, now_ms)

    def mutations_throttle_ms(self, bucket: TokenBucket) -> int:
        """How long a client that changed topics has to wait."""
        return bucket.throttle_ms(self._now_ms())

    def _meter(self, quota: Quota, user: str, client_id: str) -> Meter | None:
        applied = self.table.of_client(quota, user, client_id)
        if applied is None:
            return None
        key = (quota, _metered(applied.entity, user, client_id))
        meter = self._meters.get(key)
        if meter is None:
            meter = self._meters[key] = Meter(rate=WindowedRate(self._windows), bound=applied.bound)
            if len(self._meters) > METERS_MAX:
                self._meters.popitem(last=False)
        meter.bound = applied.bound
        return meter

    def _bucket(self, user: str, client_id: str) -> TokenBucket | None:
        applied = self.table.of_client(Quota.CONTROLLER_MUTATION_RATE, user, client_id)
        if applied is None:
            return None
        key = _metered(applied.entity, user, client_id)
        bound, bucket = self._buckets.get(key, (0.0, None))
        if bucket is None or bound != applied.bound:
            windows = self._mutation_windows
            burst = applied.bound * windows.count * windows.size_ms / 1000
            bucket = TokenBucket(applied.bound, burst, self._now_ms())
            self._buckets[key] = (applied.bound, bucket)
            if len(self._buckets) > METERS_MAX:
                self._buckets.popitem(last=False)
        return bucket


def _metered(entity: Entity, user: str, client_id: str) -> Entity:
    """Who shares a meter: the components of the entity with the client's own names for defaults."""
    names = {EntityType.USER: user, EntityType.CLIENT_ID: client_id}
    return tuple(Component(kind, names.get(kind)) for kind, _ in entity)
