"""`make demo`: the whole pipeline on one machine, with simulated faults."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
# The demo runs on the test bed's simulated hardware.
sys.path.insert(0, str(ROOT / "tests"))
