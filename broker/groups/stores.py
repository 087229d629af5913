"""What a group asks the log to keep, and what it takes in once the log has it."""

from __future__ import annotations

from collections.abc import Mapping

from broker.errors import ErrorCode
from broker.groups.draft import Draft
from broker.groups.events import MemberMetadata, Store, Stored, StoreId
from broker.groups.standing import Standing
from broker.groups.state import State


class Stores:
    """Numbers the stores of one group; every one of them is reported once."""

    def __init__(self, standing: Standing, draft: Draft) -> None:
        self.under_way = 0
        """Stores that have not been reported."""
        self._standing = standing
        self._draft = draft
        self._last = StoreId(0)

    def store_members(self, assignments: Mapping[str, bytes]) -> StoreId:
        """Store who is in and what each gets: nothing for members left out, and nothing goes to anyone who is
        no member.
        """
        protocol = self._standing.protocol or ""
        return self.store(
            tuple(
                each.recorded(protocol, assignments.get(each.member_id, b""))
                for each in self._standing.roster
            )
        )

    def store(self, members: tuple[MemberMetadata, ...]) -> StoreId:
        """Store the group as it stands, with these members."""
        self._last = StoreId(self._last + 1)
        self.under_way += 1
        self._draft.store(Store(id=self._last, metadata=self._standing.recorded(members)))
        return self._last

    def take_in(self, event: Stored) -> None:
        """What was stored is so from now on; a failure is noted."""
        self.under_way -= 1
        if event.error is ErrorCode.NONE:
            self._apply(event.store)
        else:
            self._draft.note(
                "store_failed", generation=event.store.metadata.generation, error=event.error.name
            )

    def _apply(self, store: Store) -> None:
        """Apply what was stored unless the group has moved on: only the last store is about the present
        members.
        """
        standing = self._standing
        is_current = store.id == self._last and store.metadata.generation == standing.generation
        if is_current and standing.state not in (State.PREPARING_REBALANCE, State.DEAD):
            standing.apply(store.metadata)
        else:
            standing.stored = store.metadata
