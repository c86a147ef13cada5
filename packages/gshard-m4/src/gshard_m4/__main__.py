"""`python -m gshard_m4`: the same as `gshard-m4`."""

import sys

from gshard_m4.cli import run

sys.exit(run())
