"""Lets tests of this folder import the fakes beside them."""

import sys
from pathlib import Path

FAKES = str(Path(__file__).parent)
if FAKES not in sys.path:
    sys.path.append(FAKES)
