"""`python -m streamsvm` is the `streamsvm` command."""

import sys

from streamsvm.cli import main

sys.exit(main())
