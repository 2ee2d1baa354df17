"""URLs of object stores, told from paths of local files."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

SCHEMES = ("s3", "gs", "az", "http", "https")


def is_remote(path: str | Path) -> bool:
    """Tell whether a path is the URL of something in an object store."""
    return urlsplit(str(path)).scheme in SCHEMES
