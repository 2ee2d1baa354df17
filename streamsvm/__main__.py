"""`python -m streamsvm` is the `streamsvm` command."""

import sys

from streamsvm.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
