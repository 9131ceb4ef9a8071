"""The reference engine: a small, true mixture-of-experts language model server.

It is what the demo lanes run and what the tests swap. It imports nothing of lanectl, and nothing in lanectl
imports it: a lane reaches it the way it reaches any engine, over HTTP, logs and signals.
"""

VERSION = "0.1.0"  # what /version answers; part of the system fingerprint
