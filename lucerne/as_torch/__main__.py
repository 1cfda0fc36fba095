"""`python -m lucerne.as_torch script.py args`, or `-m module args`."""

import sys

from lucerne._src.as_torch.runner import main

sys.exit(main(sys.argv[1:]))
