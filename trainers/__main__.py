"""`python -m trainers` is the same as `trainers`."""

import sys

from trainers.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
