"""`python -m gshard_annotate.inspector module:function --mesh data=2,expert=4`: a report."""

import sys

from gshard_annotate.inspector.command import run

if __name__ == "__main__":
    sys.exit(run())
