"""Who may ask what by HTTP."""

from __future__ import annotations

import pytest

from mirrormaker.console.access import Access

HERE = {"Host": "127.0.0.1:8080"}
TOKEN = "a-token"
GOOD = {"Authorization": f"Bearer {TOKEN}"}


@pytest.mark.parametrize(
    ("access", "method", "headers", "status"),
    [
        (Access(host="127.0.0.1"), "GET", HERE, None),
        (Access(host="127.0.0.1"), "POST", HERE, None),
        (Access(host="127.0.0.1"), "POST", {"Host": "localhost:8080"}, None),
        (Access(host="::1"), "POST", {"Host": "[::1]:8080"}, None),
        (Access(host="127.0.0.1"), "GET", {"Host": "attacker.example"}, 403),
        (Access(host="127.0.0.1"), "GET", {}, 403),
        (Access(host="127.0.0.1"), "GET", {"Host": "[garbled"}, 403),
        (Access(host="127.0.0.1"), "POST", {**HERE, "Origin": "http://127.0.0.1:8080"}, None),
        (Access(host="127.0.0.1"), "POST", {**HERE, "Origin": "https://attacker.example"}, 403),
        (Access(host="127.0.0.1"), "POST", {**HERE, "Origin": "null"}, 403),
        (Access(host="127.0.0.1"), "POST", {**HERE, "Origin": "http://["}, 403),
        (Access(host="127.0.0.1", token=TOKEN), "GET", HERE, None),
        (Access(host="127.0.0.1", token=TOKEN), "POST", HERE, 401),
        (Access(host="127.0.0.1", token=TOKEN), "POST", {**HERE, **GOOD}, None),
        (Access(host="0.0.0.0"), "GET", {"Host": "jfk.example:80"}, None),
        (Access(host="0.0.0.0"), "POST", {"Host": "jfk.example:80"}, 403),
        (Access(host="0.0.0.0", token=TOKEN), "POST", {"Host": "jfk.example:80", **GOOD}, None),
        (Access(host="0.0.0.0", token=TOKEN), "POST", {"Authorization": f"Basic {TOKEN}"}, 401),
        (Access(host="127.0.0.1", token=TOKEN), "POST", {**HERE, "Authorization": "Bearer \udcff"}, 401),
        (Access(host="127.0.0.1", token="ö"), "POST", {**HERE, "Authorization": "Bearer ö"}, None),
        (Access(host="127.0.0.1", token=""), "POST", {**HERE, "Authorization": "Bearer"}, 401),
        (Access(host="127.0.0.1", token=""), "POST", {**HERE, "Authorization": "Bearer  "}, 401),
        (Access(host="0.0.0.0", token=TOKEN), "DELETE", {"Authorization": "Bearer wróng"}, 401),
    ],
)
def test_requests_are_served_or_refused(
    access: Access, method: str, headers: dict[str, str], status: int | None
) -> None:
    refusal = access.refusal(method, headers)
    assert (refusal.status if refusal else None) == status


def test_a_token_is_never_shown() -> None:
    assert TOKEN not in repr(Access(host="127.0.0.1", token=TOKEN))
