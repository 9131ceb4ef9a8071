"""What every tier of the tests shares."""

import gc
import os
import signal

import pytest
from hypothesis import settings

# One thread for numpy's matrix products, as in the reference engine itself: tests run side by side on two cores.
# Must be set before anything loads numpy.
os.environ["OPENBLAS_NUM_THREADS"] = "1"
# Tests start hundreds of Python processes of a fresh checkout: each would compile all it imports anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

pytest_plugins = ["tests.support.engine_fixture"]

# No test depends on speed: an example that takes 20 ms alone takes a second on a loaded two-core machine.
settings.register_profile("lanectl", deadline=None)
settings.load_profile("lanectl")


def pytest_configure() -> None:
    """Have signals as a terminal has them: run in the background or under nohup, every child would ignore them."""
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


def pytest_collection_finish(session: pytest.Session) -> None:
    """What is loaded by now stays: leave it out of every collection, which the crash tests would pay for dearly."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
