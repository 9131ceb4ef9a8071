"""The numbers of the sidecar protocol: which word is what, and the names in the environment.

Source: the published expert sidecar's peer protocol, version 2; words 7 to 10 from the handshake of the published
two-Station sidecar.
"""

from __future__ import annotations

PATH_VARIABLE = "VLLM_EXP_PEER2_SHM"
DEFAULT_PATH = "/dev/shm/vllm_peer_tier2"
SPINS_VARIABLE = "VLLM_EXP_PEER_SPINS"

# Little-endian signed 64-bit words at 0. Words 0 and 2 to 6 are the server's, the others the sidecar's.
PUBLISHED, COMPLETED, TIMEOUTS, ROWS_SENT, TOKENS_SEEN, WAITED_NS, WAITS = range(7)
MAGIC_WORD, ROWMAP_WORD, PID_WORD, RANK_WORD = range(7, 11)
MAGIC = 0x45335F56345F5052  # a sidecar serves, and words 8 to 10 are its own

# More of them at HEADER_AT, about the call that is published.
HEADER_AT = 4096
SEQUENCE, LAYER, ROWS, TOKENS = range(4)

PAYLOAD_AT = 8192
MAX_ROWS = 8192  # rows of one call
