"""`python -m lucerne`: the same as the `lucerne` command."""

import sys

from lucerne._src.cli import main

sys.exit(main())
