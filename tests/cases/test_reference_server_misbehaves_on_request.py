"""The reference engine's fault switches, each as a client or the one who runs it sees it."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import time

import pytest

from tests.support.poll import until
from tests.support.reference import ReferenceServer

WAIT_S = 10.0


def _refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except ConnectionRefusedError:
        return True
    return False


def test_boot_delay_keeps_the_port_closed() -> None:
    began = time.monotonic()
    with ReferenceServer(faults="boot-delay=0.4") as server:
        assert time.monotonic() - began >= 0.4
        assert server.get("/health").status == 200


def test_loading_answers_503_until_it_is_loaded() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with ReferenceServer("--port", str(port), faults="loading=0.5", wait=False) as server:
        server.port = port
        until(lambda: not _refused(port), WAIT_S, "an open port")
        assert server.get("/health").status == 503
        assert server.post("/v1/completions", {"prompt": "a"}).status == 503
        until(lambda: server.get("/health").status == 200, WAIT_S, "the end of the loading")
        assert len(server.tokens("a")) == 8


@pytest.mark.parametrize("code", [0, 1, 42])
def test_exit_ends_the_boot_after_some_lines(code: int) -> None:
    with ReferenceServer(faults=f"exit={code}:3", wait=False) as server:
        assert server.ended() == code
        assert len(server.lines) == 3


def test_exit_with_a_traceback() -> None:
    with ReferenceServer("--fault", "exit=1", "--fault", "traceback", wait=False) as server:
        assert server.ended() == 1
        assert "Traceback (most recent call last):" in server.lines
        assert server.lines[-1].startswith("RuntimeError: Engine core initialization failed.")


def test_hang_after_some_requests_with_a_healthy_health() -> None:
    with ReferenceServer(faults="hang=1") as server:
        assert len(server.tokens("a")) == 8
        connection = server.connect()
        connection.request("POST", "/v1/completions", json.dumps({"prompt": "a"}))
        assert connection.sock is not None
        connection.sock.settimeout(0.3)
        with pytest.raises(TimeoutError):
            connection.getresponse()
        connection.close()
        assert server.get("/health").status == 200
        assert server.get("/v1/models").status == 200
        assert server.terminate() == 0


def test_ignore_sigterm_needs_a_kill() -> None:
    with ReferenceServer(faults="ignore-sigterm") as server:
        server.process.send_signal(signal.SIGTERM)
        assert len(server.tokens("a")) == 8  # served after the signal
        assert server.process.poll() is None
        server.process.kill()
        assert server.ended() == -signal.SIGKILL


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_hold_port_keeps_the_socket_after_the_end(end: signal.Signals) -> None:
    with ReferenceServer(faults="hold-port=1") as server:
        server.process.send_signal(end)
        server.ended()
        assert not _refused(server.port)
        until(lambda: _refused(server.port), WAIT_S, "the port free again")


def test_answer_redirects_everything_or_refuses_a_part() -> None:
    with ReferenceServer(faults="answer=301") as server:
        answer = server.get("/health")
        assert (answer.status, "location" in answer.headers) == (301, True)
        assert server.post("/v1/completions", {"prompt": "a"}).status == 301
    with ReferenceServer(faults="answer=401:/v1") as server:
        assert server.get("/health").status == 200
        assert server.get("/v1/models").status == 401


def test_wrong_model_is_listed() -> None:
    with ReferenceServer("--served-model-name", "right", faults="wrong-model=wrong") as server:
        assert [card["id"] for card in server.get("/v1/models").json["data"]] == ["wrong"]


def test_reject_names_the_field() -> None:
    with ReferenceServer(faults="reject=cache_salt") as server:
        answer = server.post("/v1/completions", {"prompt": "a", "cache_salt": "x"})
        assert (answer.status, answer.json["error"]["param"]) == (400, "cache_salt")
        assert "cache_salt" in answer.json["error"]["message"]
        assert server.post("/v1/completions", {"prompt": "a", "max_tokens": 1}).status == 200


def test_half_lines_are_whole_lines_in_the_end() -> None:
    with ReferenceServer(faults="half-lines=0.01") as server:
        until(lambda: "Application startup complete. … Größe" in server.lines[-1], WAIT_S, "the last line")
        assert any(not piece.endswith(b"\n") for piece in server.log_pieces)
        assert any(piece.endswith(b"\xe2") for piece in server.log_pieces)  # the first byte of the ellipsis


def test_die_ends_the_process_in_mid_stream() -> None:
    with ReferenceServer(faults="die=2") as server:
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            _read_all(server)
        assert server.ended() == -signal.SIGKILL


def _read_all(server: ReferenceServer) -> bytes:
    connection = server.connect()
    connection.request("POST", "/v1/completions", json.dumps({"prompt": "a", "stream": True}))
    return connection.getresponse().read()


def test_error_in_mid_stream_then_done() -> None:
    with ReferenceServer(faults="error-at=2") as server:
        answer = server.stream(max_tokens=20)
        assert answer.complete
        assert answer.done
        assert ["error" in chunk for chunk in answer.chunks] == [False, False, False, True]


def test_cut_in_mid_stream_without_done() -> None:
    with ReferenceServer(faults="cut=2") as server:
        answer = server.stream(max_tokens=3000)
        assert (answer.complete, answer.done, len(answer.token_ids)) == (False, False, 2)
        assert len(server.get("/v1/models").json["data"]) == 1
        until(lambda: server.metric("vllm:num_requests_running") == 0, WAIT_S, "the cut request's seat free")
        assert server.metric("vllm:generation_tokens_total") < 3000


def test_usage_missing_or_wrong() -> None:
    with ReferenceServer(faults="no-usage") as server:
        answer = server.stream()
        assert (answer.done, answer.usage) == (True, None)
    with ReferenceServer(faults="wrong-usage=5") as server:
        assert server.stream(max_tokens=8).usage["completion_tokens"] == 13


def test_the_role_chunk_early_or_not_at_all() -> None:
    with ReferenceServer(faults="early-role hang=0") as server:
        connection = server.connect()
        body = {"messages": [{"role": "user", "content": "a"}], "stream": True}
        connection.request("POST", "/v1/chat/completions", json.dumps(body))
        assert b'"role":"assistant"' in connection.getresponse().read1(65536)  # though no token ever comes
        connection.close()
    with ReferenceServer(faults="no-role") as server:
        assert "role" not in server.stream().chunks[0]["choices"][0]["delta"]


def test_several_tokens_in_a_chunk() -> None:
    with ReferenceServer(faults="merge=3") as server, ReferenceServer() as plain:
        answer = server.stream(max_tokens=8)
        assert [len(chunk["choices"][0]["token_ids"]) for chunk in answer.chunks[1:-1]] == [3, 3, 2]
        expected = plain.stream(max_tokens=8)
        assert (answer.text, answer.token_ids, answer.usage) == (expected.text, expected.token_ids, expected.usage)


@pytest.mark.parametrize(
    ("faults", "seen"),
    [
        ("crlf", b"}\r\n\r\ndata: "),
        ("no-space", b"\n\ndata:{"),
        ("comments", b": keep-alive\n\ndata: "),
        ("u2028", '\u2028"'.encode()),
        ("split-writes", b"\n\ndata: "),
        ("crlf no-space comments u2028 split-writes", b": keep-alive\r\n\r\ndata:{"),
    ],
)
def test_events_in_other_forms_carry_the_same_tokens(faults: str, seen: bytes) -> None:
    with ReferenceServer(faults=faults) as server, ReferenceServer() as plain:
        answer = server.stream()
        assert seen in answer.raw
        assert answer.done
        assert answer.token_ids == plain.stream().token_ids


@pytest.mark.parametrize(("fault", "name"), [("reasoning", "reasoning"), ("old-reasoning", "reasoning_content")])
def test_text_under_another_name(fault: str, name: str) -> None:
    with ReferenceServer(faults=fault) as server:
        deltas = [chunk["choices"][0]["delta"] for chunk in server.stream().chunks[1:-1]]
        assert all(name in delta and "content" not in delta for delta in deltas)


def test_a_wrong_fault_is_a_usage_error() -> None:
    with ReferenceServer(faults="no-such-fault", wait=False) as server:
        assert server.ended() == 2
        assert "unknown fault 'no-such-fault'" in server.log
