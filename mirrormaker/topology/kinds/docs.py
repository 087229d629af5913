"""What the docstrings of the model say: of a class, and under each of its fields. Read from the source, since
Python does not keep those of fields.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from itertools import pairwise


def field_docs(cls: type) -> dict[str, str]:
    """Field -> what stands under it, in one line."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    found = {}
    for declared, following in pairwise(body):
        if isinstance(declared, ast.AnnAssign) and isinstance(declared.target, ast.Name):
            text = _text_of(following)
            if text is not None:
                found[declared.target.id] = text
    return found


def class_doc(cls: type) -> str:
    """The class's docstring, in one line."""
    return " ".join((inspect.getdoc(cls) or "").split())


def _text_of(statement: ast.stmt) -> str | None:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        value = statement.value.value
        return " ".join(value.split()) if isinstance(value, str) else None
    return None
