"""What programs plug into clients by its name: a short name, a name that Java's clients use for the same, or
the dotted path of a class of the program's own.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any


def load_part(name: str, known: Mapping[str, type[Any]]) -> Any:
    """An instance of the class of that name: one of the `known`, or `package.module.Class` (also
    `package.module:Class`), made without arguments.

    Raises ValueError that says what is wrong with the name.
    """
    known_class = known.get(name)
    return known_class() if known_class is not None else _class_at(name)()


def _class_at(path: str) -> type[Any]:
    module_name, separator, class_name = path.replace(":", ".").rpartition(".")
    if not separator:
        raise ValueError(f"{path!r} is no name that is known, nor package.module.Class")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ValueError(f"{path!r}: {error}") from error
    found = getattr(module, class_name, None)
    if not isinstance(found, type):
        raise ValueError(f"{path!r}: {module_name} has no class {class_name}")
    return found
