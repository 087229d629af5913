"""What a process that copies does with its memory."""

from __future__ import annotations

import gc

from mirrormaker.memory import settle_memory


def test_collections_do_not_look_at_what_has_been_imported() -> None:
    before = gc.get_freeze_count()
    try:
        settle_memory()
        assert gc.get_freeze_count() > before + len(gc.get_objects())
    finally:
        gc.unfreeze()
