"""The same examples every time, so that a change is judged by what it changed. Further ones are
looked for by `make soak` (TERCET_EXAMPLES=random).
"""

import os

from hypothesis import settings

settings.register_profile("random", print_blob=True)
settings.register_profile("repeated", derandomize=True)
settings.load_profile("random" if os.environ.get("TERCET_EXAMPLES") == "random" else "repeated")
