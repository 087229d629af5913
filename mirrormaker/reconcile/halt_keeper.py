"""The halts of one route, kept in the control topic of its destination."""

from __future__ import annotations

from broker.clock import Clock
from broker.types import TopicPartition
from mirrormaker.flow.trouble import Trouble, TroubleKind
from mirrormaker.reconcile.control_board import ControlBoard
from mirrormaker.reconcile.halts import Halt
from mirrormaker.reconcile.routes import RouteWork


class RouteHalts:
    """See `mirrormaker.flow.arbiter.Halts`."""

    def __init__(self, work: RouteWork, board: ControlBoard, daemon: str, clock: Clock) -> None:
        """`daemon`: who halts, as others know it."""
        self._board = board
        self._daemon = daemon
        self._clock = clock
        self.change(work)

    def change(self, work: RouteWork) -> None:
        """What stands from now on stands in this."""
        self.route = work.route
        self._digest = work.digest

    def _halt(self, source: TopicPartition) -> Halt | None:
        return self._board.known_wishes(self.route.name).halts.get(source)

    def known(self) -> frozenset[TopicPartition]:
        """All that stand, or stood and were released."""
        return frozenset(self._board.known_wishes(self.route.name).halts)

    def standing(self, source: TopicPartition) -> Trouble | None:
        """Why it stands, whether or not it has been released since."""
        halt = self._halt(source)
        return None if halt is None else halt.trouble

    def is_released(self, trouble: Trouble) -> bool:
        """Whether somebody has said to go on behind this, and not behind another of before."""
        halt = self._halt(trouble.source)
        if halt is None or halt.released is None:
            return False
        return halt.trouble.is_same(trouble)

    def deleted_topics(self) -> set[str]:
        """Topics of the source that stand because they were deleted."""
        halts = self._board.known_wishes(self.route.name).halts
        return {
            source.topic for source, halt in halts.items() if halt.trouble.kind is TroubleKind.TOPIC_DELETED
        }

    async def tell(self, trouble: Trouble, *, stops_route: bool) -> None:
        """It stands from now on, unless that is known. Raises BrokerError where the destination has not been
        told yet, which goes on.
        """
        known = self._halt(trouble.source)
        told = (trouble, stops_route, self._digest, None)
        if known is not None and told == (known.trouble, known.stops_route, known.digest, known.released):
            return
        halt = Halt(
            trouble=trouble,
            at_ms=self._clock.now_ms(),
            by=self._daemon,
            stops_route=stops_route,
            digest=self._digest,
        )
        await self._board.halt(self.route.name, halt)

    async def take_back(self, source: TopicPartition) -> None:
        """It stands no more. Raises BrokerError."""
        await self._board.take_back_halts(self.route.name, [source])
