"""Messages that a page quotes word for word."""

from __future__ import annotations

import re

from tests.conftest import ROOT

SCHEDULER, WORKER = "tcp://10.0.0.1:8786", "tcp://10.0.0.2:40331"  # on the pages


def is_quoted(message: str, page: str) -> bool:
    """Whether a page in docs/ has a message, up to the addresses of its scheduler and worker, and to line breaks."""
    for role, address in (("scheduler", SCHEDULER), ("worker", WORKER)):
        message = re.sub(rf"\b{role} (tcp|tls)://127\.0\.0\.1:\d+", f"{role} {address}", message)
    return message in " ".join((ROOT / "docs" / page).read_text().split())
