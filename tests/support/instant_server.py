"""A model server that is there at once: it answers what a swap asks of a lane. Run by path, standard library only.

`python -I -S instant_server.py --host H --port P [--exit CODE] [--deaf]`. The tests that put hundreds of swaps through
something use it, since the reference engine takes 0.3 s to boot. `--exit`: it fails to boot with this code. `--deaf`:
it ignores SIGTERM.
"""

import json
import os
import signal
import socket
import sys
import threading

MODEL = "demo"
MAX_MODEL_LEN = 2048
PROMPT_TOKENS = 3
BACKLOG = 64
HEAD_END = b"\r\n\r\n"


def main(words: list[str]) -> None:
    given = dict(zip(words[::2], words[1::2], strict=False))
    signal.signal(signal.SIGTERM, signal.SIG_IGN if "--deaf" in words else lambda *_: os._exit(0))
    if "--exit" in given:
        print("RuntimeError: Engine core initialization failed", flush=True)
        os._exit(int(given["--exit"]))
    with socket.create_server((given["--host"], int(given["--port"])), backlog=BACKLOG) as listener:
        print("Application startup complete.", flush=True)
        while True:
            threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()


def answer(client: socket.socket) -> None:
    """Answer one request and close: no client of the tests minds."""
    with client:
        head, _, body = b"", b"", b""
        while HEAD_END not in head:
            piece = client.recv(65536)
            if not piece:
                return
            head += piece
        head, _, body = head.partition(HEAD_END)
        length = _length(head)
        while len(body) < length:
            body += client.recv(65536)
        path = head.split(b" ", 2)[1].decode()
        try:
            _route(client, path, json.loads(body) if body else {})
        except OSError:
            pass  # the client went away


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


def _route(client: socket.socket, path: str, asked: dict[str, object]) -> None:
    if path == "/health":
        _send(client, 200, b"")
    elif path == "/v1/models":
        _send(client, 200, {"data": [{"id": MODEL, "object": "model", "max_model_len": MAX_MODEL_LEN}]})
    elif path == "/v1/completions":
        choice = {"index": 0, "text": " x", "finish_reason": "length"}
        _send(client, 200, {"model": MODEL, "choices": [choice], "usage": _usage(1)})
    elif path == "/v1/chat/completions":
        _stream(client, int(str(asked["max_tokens"])))
    else:
        _send(client, 404, {"error": {"message": f"no {path}"}})


def _send(client: socket.socket, status: int, body: object) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    client.sendall(
        f"HTTP/1.1 {status} -\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n"
        "Connection: close\r\n\r\n".encode()
        + data
    )


def _stream(client: socket.socket, tokens: int) -> None:
    """Stream one token a chunk, then the usage, as vLLM's chat API does."""
    client.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
    for token in range(tokens):
        last = token + 1 == tokens
        choice = {"index": 0, "delta": {"content": " x"}, "token_ids": [token], "finish_reason": None}
        choice |= {"finish_reason": "length"} if last else {}
        _event(client, {"model": MODEL, "choices": [choice], "usage": _usage(token + 1)})
    _event(client, {"model": MODEL, "choices": [], "usage": _usage(tokens)})
    client.sendall(b"data: [DONE]\n\n")


def _event(client: socket.socket, message: object) -> None:
    client.sendall(b"data: " + json.dumps(message).encode() + b"\n\n")


def _usage(tokens: int) -> dict[str, int]:
    return {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": tokens, "total_tokens": PROMPT_TOKENS + tokens}


if __name__ == "__main__":
    main(sys.argv[1:])
