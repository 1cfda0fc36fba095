"""`python -m tests.conformance COMMAND`: see README.md beside this file."""

import sys

from tests.conformance.cli import main

if __name__ == "__main__":
    sys.exit(main())
