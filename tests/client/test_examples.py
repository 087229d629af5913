from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "ops" / "docs" / "clients.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_of_the_page_on_clients_run(example: str) -> None:
    exec(compile(example, str(PAGE), "exec"), {})


def test_the_page_names_every_option_of_secured_connections() -> None:
    from broker.client.security.given_options import OPTION_NAMES

    page = PAGE.read_text()
    assert [name for name in OPTION_NAMES if f"`{name}" not in page] == []
