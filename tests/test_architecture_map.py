from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NAME_COLUMNS = slice(2, 24)


def packages_in_map(top: str) -> Counter[str]:
    """The packages that the map of the code names below a folder, and how often."""
    _, _, below = (ROOT / "ops/docs/architecture.md").read_text().partition(f"\n{top}/\n")
    section: list[str] = []
    for line in below.splitlines():
        if not line.startswith(" "):
            break
        section.append(line)
    names = [name for line in section if line[2] != " " for name in line[NAME_COLUMNS].split()]
    return Counter(name.removesuffix("/") for name in names if name.endswith("/"))


@pytest.mark.parametrize("top", ["broker", "mirrormaker"])
def test_the_map_of_the_code_names_every_package_once(top: str) -> None:
    there = {file.parent.name for file in (ROOT / top).glob("*/__init__.py")}
    assert packages_in_map(top) == Counter(there)
