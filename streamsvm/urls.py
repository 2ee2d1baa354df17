"""URLs of object stores, told from paths of local files."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

SCHEMES = ("s3", "gs", "az", "http", "https")


def is_remote(path: str | Path) -> bool:
    """Tell whether a path is the URL of something in an object store."""
    return urlsplit(str(path)).scheme in SCHEMES


def hide_secrets(path: str | Path) -> str:
    """Return a path for a message: a URL without its user, password, query and fragment, where credentials may be."""
    if not is_remote(path):
        return str(path)
    parts = urlsplit(str(path))
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
