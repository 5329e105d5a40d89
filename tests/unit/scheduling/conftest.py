"""Lets tests of this folder import the fake engine of the property tests."""

import sys
from pathlib import Path

FAKES = str(Path(__file__).parents[2] / "property")
if FAKES not in sys.path:
    sys.path.append(FAKES)
