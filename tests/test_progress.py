"""Progress bars and the threads whose work moves them."""

from __future__ import annotations

import pytest

from broker.progress import LeftError, progress_bar


def test_work_ends_that_goes_on_after_its_bar_was_left() -> None:
    with progress_bar("done") as bar:
        bar.begin(2)
        bar.by(1)
    with pytest.raises(LeftError):
        bar.by(1)
