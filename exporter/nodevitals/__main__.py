"""`python -m nodevitals` is the `nodevitals` command."""

import sys

from nodevitals.commands.cli import main

if __name__ == "__main__":
    sys.exit(main())
