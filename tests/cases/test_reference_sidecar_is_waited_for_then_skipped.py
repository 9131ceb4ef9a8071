"""The danger of the sidecar design, reproduced: a late sidecar is skipped without a word, and the tokens are wrong.

And what guards against it: with a spin limit of hours the same freeze is a pause, and no token is wrong.
"""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.poll import until
from tests.support.reference import ReferenceServer
from tests.support.reference_sidecar import HASTY, PATIENT, ReferenceSidecar, words, write_map

WITHIN_S = 20.0
TOKENS = 30
PROMPT = "The letter lies on the table by the window."
MAGIC = 0x45335F56345F5052


@pytest.fixture
def rowmap(tmp_path: Path) -> Path:
    return write_map(tmp_path / "rowmap.json", "tiny", 5)


@pytest.fixture
def sidecar(rowmap: Path) -> Iterator[ReferenceSidecar]:
    with ReferenceSidecar(rowmap) as started:
        assert started.serving, started.log
        yield started


@pytest.fixture(scope="module")
def right() -> list[int]:
    """The right answer to PROMPT, from a server that has all experts."""
    with ReferenceServer() as server:
        return server.tokens(PROMPT, max_tokens=TOKENS)


def peer(sidecar: ReferenceSidecar, environment: dict[str, str] = PATIENT, **more: Any) -> ReferenceServer:
    return ReferenceServer(*sidecar.server_options, environment=environment, **more)


def in_background(server: ReferenceServer, **fields: Any) -> tuple[threading.Thread, list[list[int]]]:
    answers: list[list[int]] = []
    thread = threading.Thread(target=lambda: answers.append(server.tokens(PROMPT, **fields)), daemon=True)
    thread.start()
    return thread, answers


@pytest.mark.parametrize("environment", [{}, HASTY], ids=["the default limit", "a shorter one"])
def test_frozen_sidecar_and_a_small_spin_limit_wrong_tokens_with_200_and_not_a_word(
    sidecar: ReferenceSidecar, right: list[int], environment: dict[str, str]
) -> None:
    tokens = len(right) if environment else 3
    with peer(sidecar, environment) as server:
        assert server.tokens(PROMPT, max_tokens=TOKENS) == right
        before, lines = words(sidecar.path), len(server.lines)
        assert before[2] == 0
        sidecar.freeze()
        fields = {"prompt": PROMPT, "temperature": 0, "max_tokens": tokens, "return_token_ids": True, "cache_salt": "b"}
        answer = server.post("/v1/completions", fields)
        assert answer.status == 200
        wrong = answer.json["choices"][0]["token_ids"]
        assert len(wrong) == tokens
        assert wrong != right[:tokens]
        assert server.get("/health").status == 200
        after = words(sidecar.path)
        assert after[1] == before[1]
        assert after[2] >= tokens
        assert after[0] > after[1]
        assert server.terminate() == 0
        assert all(" 200 OK" in line or re.match(r"INFO: +(Shutting|Finished)", line) for line in server.lines[lines:])


def test_with_v25s_spin_limit_the_same_freeze_is_only_a_pause(sidecar: ReferenceSidecar, right: list[int]) -> None:
    with peer(sidecar) as server:
        assert server.tokens(PROMPT, max_tokens=TOKENS) == right
        sidecar.freeze()
        thread, answers = in_background(server, max_tokens=TOKENS, cache_salt="b")
        until(lambda: words(sidecar.path)[0] > words(sidecar.path)[1], WITHIN_S, "a call that waits")
        thread.join(0.2)  # a layer without cold rows is published and not waited for: let it come to one that has some
        stalled = words(sidecar.path)
        thread.join(0.5)
        assert not answers
        assert words(sidecar.path)[:5] == stalled[:5]
        assert server.get("/health").status == 200
        sidecar.thaw()
        thread.join(WITHIN_S)
        assert answers == [right]
        assert words(sidecar.path)[2] == 0
        assert words(sidecar.path)[5] > 0.4e9  # nanoseconds waited


def test_a_sidecar_that_froze_itself_goes_on_too(rowmap: Path, right: list[int]) -> None:
    with ReferenceSidecar(rowmap, faults="peer-freeze=25") as sidecar, peer(sidecar) as server:
        thread, answers = in_background(server, max_tokens=TOKENS)
        until(lambda: words(sidecar.path)[0] > words(sidecar.path)[1], WITHIN_S, "a call that waits")
        thread.join(0.3)
        assert not answers
        sidecar.thaw()
        thread.join(WITHIN_S)
        assert answers == [right]


def test_a_call_left_open_by_a_dead_sidecar_is_taken_up_by_the_next(rowmap: Path, right: list[int]) -> None:
    with ReferenceSidecar(rowmap, faults="peer-exit=25") as first, peer(first) as server:
        thread, answers = in_background(server, max_tokens=TOKENS)
        assert first.ended() == 1
        with ReferenceSidecar(rowmap, path=first.path):
            thread.join(WITHIN_S)
            assert answers == [right]


def test_a_slow_sidecar_changes_no_token(rowmap: Path, right: list[int]) -> None:
    with ReferenceSidecar(rowmap, faults="peer-slow=10") as sidecar, peer(sidecar) as server:
        assert server.tokens(PROMPT, max_tokens=TOKENS) == right


def test_a_signal_makes_a_sidecar_slow_and_the_next_one_as_fast_as_it_was(rowmap: Path, right: list[int]) -> None:
    with ReferenceSidecar(rowmap, faults="peer-slow-on-signal=100") as sidecar, peer(sidecar) as server:
        waited_ns = []
        for salt in "abc":
            before = words(sidecar.path)
            assert server.tokens(PROMPT, max_tokens=TOKENS, cache_salt=salt) == right
            after = words(sidecar.path)
            waited_ns.append((after[5] - before[5]) / (after[6] - before[6]))
            sidecar.process.send_signal(signal.SIGUSR1)
        fast, slow, fast_again = waited_ns
        assert slow > 3 * max(fast, fast_again)


def test_the_words_count_calls_rows_tokens_and_waits(sidecar: ReferenceSidecar) -> None:
    with peer(sidecar) as server:
        began = words(sidecar.path)
        server.tokens([7, 8, 9, 10, 11], max_tokens=4)
        until(lambda: words(sidecar.path)[0] == words(sidecar.path)[1], WITHIN_S, "the last call is complete")
        ended = words(sidecar.path)
        grown = [after - before for before, after in zip(began, ended, strict=True)]
        assert grown[0] == grown[1] == 2 * 4  # two layers; one step for the prompt, three more
        assert grown[2] == 0
        assert 0 < grown[3] <= grown[4]
        assert grown[4] == 2 * (5 + 3)
        assert grown[5] > 0
        assert 0 < grown[6] <= grown[0]
        with sidecar.path.open("rb") as file:
            file.seek(4096)
            header = [int.from_bytes(file.read(8), "little") for _ in range(4)]
        assert header[0] == ended[0]
        assert header[1] == 1
        assert header[3] == 1


def test_a_restarted_server_counts_from_zero_and_the_same_sidecar_goes_on(
    sidecar: ReferenceSidecar, right: list[int]
) -> None:
    with peer(sidecar) as server:
        assert server.tokens(PROMPT, max_tokens=TOKENS) == right
        last = words(sidecar.path)[0]
        server.terminate()
    with peer(sidecar) as server:
        assert words(sidecar.path)[0] < last
        assert server.tokens(PROMPT, max_tokens=TOKENS) == right
        assert words(sidecar.path)[2] == 0


def test_the_sidecar_says_who_it_is_after_every_boot_of_the_server(sidecar: ReferenceSidecar) -> None:
    number = int(re.findall(r"rowmap hash (-?\d+)", sidecar.log)[0])
    identity = (MAGIC, number, sidecar.process.pid, 0)
    assert words(sidecar.path)[7:] == identity
    with peer(sidecar) as server:
        until(lambda: words(sidecar.path)[7:] == identity, WITHIN_S, "the sidecar's own words")
        assert f"rowmap hash {number}" in server.log


def test_the_file_is_for_everybody_and_sparse(sidecar: ReferenceSidecar) -> None:
    status = sidecar.path.stat()
    assert status.st_mode & 0o777 == 0o666
    assert status.st_size == 8192 + 8192 * (64 * 4 + 2 * 4 + 2 * 64 * 4)
    assert status.st_blocks * 512 < status.st_size


def test_the_boot_log_is_the_published_one(sidecar: ReferenceSidecar) -> None:
    patterns = [
        r"expert map: 11 hot, 5 cold a layer, sha256 [0-9a-f]{64}, rowmap hash -?\d+",
        r"layer 0: 5 cold experts prepared, \d+\.\d+ GB allocated",
        r"layer 1: 5 cold experts prepared, \d+\.\d+ GB allocated",
        r"prepared 2 layers in \d+\.\ds; \d+\.\d+ GB allocated",
        r"selftest: lowest cosine 1\.00000, layer [01]",
        r"serving .+",
    ]
    assert len(sidecar.lines) == len(patterns)
    for line, pattern in zip(sidecar.lines, patterns, strict=True):
        assert re.fullmatch(pattern, line)


def test_every_2000_calls_it_says_how_long_they_took(sidecar: ReferenceSidecar) -> None:
    with peer(sidecar) as server:
        server.tokens([7], max_tokens=2200)
    line = r"served 2000 cold layer calls, mean \d+\.\d us, mean rows \d+\.\d\d"
    until(lambda: any(re.fullmatch(line, one) for one in sidecar.lines), WITHIN_S, "the line of 2000 calls")


def test_a_damaged_expert_fails_the_self_test_and_is_not_served(rowmap: Path) -> None:
    with ReferenceSidecar(rowmap, faults="damaged-expert") as sidecar:
        assert sidecar.ended() == 1
        assert re.fullmatch(r"SELFTEST FAILED: layer 0 cos -?0\.\d{5}, below 0\.999; not serving", sidecar.lines[-1])
        assert not sidecar.serving
        assert words(sidecar.path)[7] != MAGIC


def test_a_server_with_more_cold_experts_than_the_sidecar_ends_it(tmp_path: Path, rowmap: Path) -> None:
    more = write_map(tmp_path / "more.json", "tiny", 9)
    with ReferenceSidecar(rowmap) as sidecar:
        options = ("--placement", "sidecar", "--rowmap", str(more), "--shm", str(sidecar.path))
        with ReferenceServer(*options, environment=HASTY) as server:
            server.tokens(PROMPT)
        assert sidecar.ended() == 1
        assert "the server has another map" in sidecar.lines[-1]


def test_another_map_with_as_many_cold_experts_is_silently_wrong(
    tmp_path: Path, sidecar: ReferenceSidecar, right: list[int]
) -> None:
    other = write_map(tmp_path / "other.json", "tiny", 5, seed=2)
    options = ("--placement", "sidecar", "--rowmap", str(other), "--shm", str(sidecar.path))
    with ReferenceServer(*options, environment=PATIENT) as server:
        assert server.tokens(PROMPT, max_tokens=TOKENS) != right
        assert words(sidecar.path)[2] == 0
        assert re.findall(r"rowmap hash (\S+)", server.log) != re.findall(r"rowmap hash (\S+)", sidecar.log)


def test_a_file_of_another_size_is_refused_by_both(tmp_path: Path, rowmap: Path) -> None:
    path = tmp_path / "peer"
    path.write_bytes(bytes(10_000))
    with ReferenceSidecar(rowmap, path=path) as sidecar:
        assert sidecar.ended() == 1
        assert "has 10000 bytes" in sidecar.lines[-1]
        options = sidecar.server_options
        with ReferenceServer(*options, wait=False) as server:
            assert server.ended() == 1
            assert "has 10000 bytes" in server.log
            assert "RuntimeError: Engine core initialization failed" in server.log


def test_a_server_makes_the_file_if_it_comes_first(rowmap: Path, right: list[int]) -> None:
    with ReferenceSidecar(rowmap) as gone:
        gone.process.kill()
        gone.ended()
        gone.path.unlink()
        with peer(gone, HASTY) as server:
            assert server.tokens(PROMPT, max_tokens=TOKENS) != right
            assert words(gone.path)[2] > 0
            assert gone.path.stat().st_mode & 0o777 == 0o666


def test_a_truncated_file_ends_the_server_and_no_answer_is_wrong(sidecar: ReferenceSidecar, right: list[int]) -> None:
    with peer(sidecar) as server:
        assert server.tokens(PROMPT, max_tokens=TOKENS) == right
        os.truncate(sidecar.path, 0)
        answer = server.post("/v1/completions", {"prompt": PROMPT, "max_tokens": TOKENS, "cache_salt": "b"})
        assert answer.status == 500
        assert server.ended() == 1


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_removed_or_replaced_under_them_still_joins_both(
    sidecar: ReferenceSidecar, right: list[int], replaced: bool
) -> None:
    with peer(sidecar) as server:
        sidecar.path.unlink()
        if replaced:
            sidecar.path.write_bytes(bytes(100))
        assert server.tokens(PROMPT, max_tokens=TOKENS) == right
