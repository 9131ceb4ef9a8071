"""Import early what is imported where it is used: while production is dark an import is dark time, and may fail."""

from __future__ import annotations

from lanectl.actions.station import Station


def preload(station: Station) -> None:
    """Import what the way back needs before production is touched.

    Later the disk may be full, the packages upgraded under us, or the machine slow: what takes 0.1 s when all is well
    would take longer exactly then.
    """
    import encodings.idna  # noqa: F401 - what getaddrinfo(3) is asked through

    import psutil  # noqa: F401
    import tenacity  # noqa: F401

    station.log.info("ready for the way back")  # the first words load the log itself, whether they are shown or not
