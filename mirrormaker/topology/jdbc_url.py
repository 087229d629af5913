"""Passwords in URLs of databases, in the ways that drivers take them. Pure."""

from __future__ import annotations

import re

SECRET_NAMES = frozenset({"password", "passwd", "pwd"})
"""Under these drivers take the password of who logs in, in letters of any case."""
_PARAMETER = re.compile(rf"[?&;,(:]\s*({'|'.join(SECRET_NAMES)})\s*=\s*[^\s&;,)]", re.IGNORECASE)
"""As in `?user=a&password=b`, `;password=b`, `:user=a;password=b;` and `(user=a)(password=b)`."""
_AUTHORITY = re.compile(r"//[^/?#;@]*:[^?#;@]+@")
"""`//user:password@host`."""
_ORACLE = re.compile(r"jdbc:oracle:\w+:[^/@]*/[^@]+@", re.IGNORECASE)
"""`jdbc:oracle:thin:user/password@host`."""


def holds_password(url: str) -> bool:
    """Whether somebody who reads the URL could log in with it."""
    return any(form.search(url) for form in (_PARAMETER, _AUTHORITY, _ORACLE))
