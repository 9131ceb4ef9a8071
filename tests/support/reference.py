"""The reference engine as a process, for tests: started, talked to over HTTP, and stopped whatever happens."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.poll import until

BOOT_WITHIN_S = 20.0  # it takes 0.2 s on an idle machine
END_WITHIN_S = 10.0
ANSWER_WITHIN_S = 30.0  # the longest silence on a connection

_LISTENING = re.compile(r"Starting server on http://[^:]+:(\d+)")


@dataclass
class Answer:
    """A whole HTTP answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Streamed:
    """A streamed answer: its raw bytes, and whether the HTTP answer ended as HTTP says it must."""

    status: int
    raw: bytes = b""
    complete: bool = False
    chunks: list[Any] = field(default_factory=list)
    done: bool = False

    @property
    def text(self) -> str:
        return "".join(_text_of(chunk) for chunk in self.chunks)

    @property
    def token_ids(self) -> list[int]:
        return [token for chunk in self.chunks for choice in chunk["choices"] for token in choice.get("token_ids", ())]

    @property
    def usage(self) -> Any:
        return next((chunk["usage"] for chunk in self.chunks if "choices" in chunk and not chunk["choices"]), None)


def _text_of(chunk: Any) -> str:
    choice = chunk["choices"][0] if chunk.get("choices") else {}
    return str(choice.get("delta", {}).get("content", "") or choice.get("text", ""))


class ReferenceServer:
    """`with ReferenceServer("--max-num-seqs", "4") as server: …`; tiny unless a shape is given."""

    def __init__(
        self, *options: str, faults: str = "", wait: bool = True, environment: dict[str, str] | None = None
    ) -> None:
        shape = () if "--shape" in options else ("--shape", "tiny")
        self._command = [sys.executable, "-m", "lanectl.reference.server", "--port", "0", *shape, *options]
        self._environment = {**os.environ, "REFERENCE_FAULTS": faults, **(environment or {})}
        self._wait = wait
        self.lines: list[str] = []
        self.log_pieces: list[bytes] = []  # as they were read
        self.port = 0

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(
            self._command, env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()
        if self._wait:
            until(lambda: self.port or self.process.poll() is not None, BOOT_WITHIN_S, "the server's boot")
            assert self.process.poll() is None, self.log
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(END_WITHIN_S)
        self._reader.join(END_WITHIN_S)

    @property
    def log(self) -> str:
        return "\n".join(self.lines)

    def terminate(self) -> int:
        """Send SIGTERM, return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.ended()

    def ended(self) -> int:
        """Wait for the end, return the exit code; the whole log has been read then."""
        code = self.process.wait(END_WITHIN_S)
        self._reader.join(END_WITHIN_S)
        return code

    def engine_process(self) -> int:
        """The process id of the engine behind the server."""
        return int(Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()[0])

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_WITHIN_S)

    def request(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None, raw: bytes | None = None
    ) -> Answer:
        """One request on a connection of its own."""
        connection = self.connect()
        try:
            data = json.dumps(body).encode() if body is not None else raw
            connection.request(method, path, data, headers or {})
            response = connection.getresponse()
            head = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, head, response.read())
        finally:
            connection.close()

    def get(self, path: str) -> Answer:
        return self.request("GET", path)

    def post(self, path: str, body: Any) -> Answer:
        return self.request("POST", path, body)

    def complete(self, prompt: str | list[int], **fields: Any) -> Any:
        """A greedy completion that does not stream."""
        fields = {"prompt": prompt, "temperature": 0, "max_tokens": 8, "return_token_ids": True, **fields}
        answer = self.post("/v1/completions", fields)
        assert answer.status == 200, answer.body
        return answer.json

    def tokens(self, prompt: str | list[int], **fields: Any) -> list[int]:
        """The token ids of a greedy completion."""
        token_ids: list[int] = self.complete(prompt, **fields)["choices"][0]["token_ids"]
        return token_ids

    def stream(self, path: str = "/v1/chat/completions", **fields: Any) -> Streamed:
        """A greedy streamed answer, read to its end, however it ends."""
        fields = {"temperature": 0, "max_tokens": 8, "stream": True, "return_token_ids": True, **fields}
        fields.setdefault("stream_options", {"include_usage": True})
        if path.endswith("chat/completions"):
            fields.setdefault("messages", [{"role": "user", "content": "Hello there."}])
        connection = self.connect()
        try:
            connection.request("POST", path, json.dumps(fields))
            response = connection.getresponse()
            answer = Streamed(response.status)
            try:
                answer.raw = response.read()
                answer.complete = True
            except http.client.IncompleteRead as cut:
                answer.raw = cut.partial
            for data in _event_data(answer.raw):
                if data == b"[DONE]":
                    answer.done = True
                else:
                    answer.chunks.append(json.loads(data))
            return answer
        finally:
            connection.close()

    def metric(self, name: str) -> float:
        """The sum of a metric's samples, whatever their labels."""
        found = re.findall(rf"^{re.escape(name)}(?:\{{.*\}})? (\S+)$", self.get("/metrics").body.decode(), re.MULTILINE)
        assert found, f"no metric {name}"
        return sum(map(float, found))

    def _read_log(self) -> None:
        assert self.process.stdout is not None
        pending = b""
        while piece := os.read(self.process.stdout.fileno(), 65536):
            self.log_pieces.append(piece)
            *lines, pending = (pending + piece).split(b"\n")
            self.lines += [line.decode() for line in lines]
            for line in lines:
                if found := _LISTENING.search(line.decode()):
                    self.port = int(found[1])


def _event_data(raw: bytes) -> Iterator[bytes]:
    """The data of each complete event, by the plain rules: blank-line ends, LF or CRLF, an optional space."""
    for event in re.split(rb"\r?\n\r?\n", raw)[:-1]:
        lines = [line for line in re.split(rb"\r?\n", event) if line.startswith(b"data:")]
        if lines:
            yield b"\n".join(line.removeprefix(b"data:").removeprefix(b" ") for line in lines)
