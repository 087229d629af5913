"""What people read of a group that is switched over."""

from __future__ import annotations

import pytest

from broker.types import TopicPartition
from mirrormaker.carrying.decision import GroupStanding
from mirrormaker.failover.groups import GroupPlace

ORDERS = TopicPartition("orders", 0)


@pytest.mark.parametrize(
    ("standing", "is_exact", "said"),
    [
        (GroupStanding.CARRIED, True, ""),
        (GroupStanding.CAREFUL, False, " (careful)"),
        (GroupStanding.UNKNOWN, False, " (nothing was copied yet)"),
    ],
)
def test_how_a_group_goes_on_is_said_where_it_is_not_exact(
    standing: GroupStanding, is_exact: bool, said: str
) -> None:
    place = GroupPlace(
        route="forth",
        group="billing",
        source=ORDERS,
        at=3,
        to=ORDERS,
        continues_at=5,
        standing=standing.value,
        is_exact=is_exact,
        unread=0,
        again=0,
    )
    assert place.line() == f"group billing: orders-0 at 3 goes on at offset 5{said}"
    assert place.describe()["standing"] == standing.value
