"""`python -m torchmedic` is the `torchmedic` command."""

import sys

from torchmedic.main import main

if __name__ == "__main__":
    sys.exit(main())
