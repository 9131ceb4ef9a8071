"""Clients that ask a lane the same questions all the time, one of them for streams, and what each was told."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType

from tests.support.station import MODEL

TOKENS = 48
CLIENTS = 3
ANSWERS_WITHIN_S = 60.0
REFUSED_PAUSE_S = 0.02
EVENT, DONE = b"data: ", b"[DONE]"


@dataclass(frozen=True)
class Told:
    """What came back: its text, and whether it is a whole answer. Else it was cut, or refused: no text."""

    text: str
    whole: bool


@dataclass(frozen=True)
class Asked:
    """One question and its answer. `began`, `ended`: monotonic seconds."""

    prompt: str
    told: Told
    began: float
    ended: float


def ask(port: int, prompt: str, *, stream: bool = False, tokens: int = TOKENS) -> Told:
    """Ask for a greedy completion. A stream that was cut is told as far as it came."""
    body = {"model": MODEL, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": stream}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWERS_WITHIN_S)
    try:
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != http.HTTPStatus.OK:
            return Told("", False)
        return _streamed(answer) if stream else Told(_text(answer.read()), True)
    except (OSError, http.client.HTTPException, ValueError, KeyError):
        return Told("", False)
    finally:
        connection.close()


def _text(data: bytes) -> str:
    return str(json.loads(data)["choices"][0]["text"])


def _streamed(answer: http.client.HTTPResponse) -> Told:
    text = ""
    try:
        while line := answer.readline():
            if not line.startswith(EVENT):
                continue
            data = line.removeprefix(EVENT).strip()
            if data == DONE:
                return Told(text, True)
            text += _text(data)
    except (OSError, http.client.HTTPException, ValueError, KeyError):
        pass  # cut within a line, or an error in an answer's place
    return Told(text, False)


class Clients:
    """Ask, while it is entered, each client its next prompt as soon as the last answer is there."""

    def __init__(self, port: int, prompts: tuple[str, ...]) -> None:
        self.asked: list[Asked] = []  # append is atomic; nobody else writes
        self._port = port
        self._prompts = prompts
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(CLIENTS)]

    def __enter__(self) -> Clients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def wait(self, seconds: float) -> None:
        self._stop.wait(seconds)

    def _run(self, number: int) -> None:
        turn = number
        while not self._stop.is_set():
            prompt, began = self._prompts[turn % len(self._prompts)], time.monotonic()
            told = ask(self._port, prompt, stream=number == 0)
            self.asked.append(Asked(prompt, told, began, time.monotonic()))
            turn += 1
            if not told.whole:
                self._stop.wait(REFUSED_PAUSE_S)


def wrong(asked: Asked, expected: Mapping[str, str]) -> bool:
    """Whether a client was told anything that the unfrozen lane does not say."""
    right, told = expected[asked.prompt], asked.told
    return told.text != right if told.whole else not right.startswith(told.text)
