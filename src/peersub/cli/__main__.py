"""`python -m peersub.cli` is `peersub`."""

import sys

from peersub.cli import main

if __name__ == "__main__":
    sys.exit(main())
