"""What every tier of the tests shares."""

import os

from hypothesis import settings

# One thread for numpy's matrix products, as in the reference engine itself: tests run side by side on two cores.
# Must be set before anything loads numpy.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

pytest_plugins = ["tests.support.engine_fixture"]

# No test depends on speed: an example that takes 20 ms alone takes a second on a loaded two-core machine.
settings.register_profile("lanectl", deadline=None)
settings.load_profile("lanectl")
