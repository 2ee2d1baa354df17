"""Run the story of the folder cells/, whose README.md describes it."""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])  # the checkout, which has the package `pipelines`
    from pipelines.cells.__main__ import main

    sys.exit(main())
