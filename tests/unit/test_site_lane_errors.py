"""What is wrong with a lane is said with file and line, path, and what was probably meant; all at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from lanectl.errors import ExitCode, LaneError, Problem, SpecError
from lanectl.site.load import check_all, load_lane
from tests.support.site_dir import DIGEST, GB300, LANE, RTX, STATION, lane_problems, site_with

SECRET = "hf_" + "Zz9" * 8

HEAD = "lane: small\nserved_model: m\n"
SERVER = "    container_name: small\n    image: ${images.engine}\n    ready: {models: true}\n"


def service(extra: str) -> str:
    """A good lane with one more line (line 8) in its only service."""
    return f"{HEAD}services:\n  server:\n{SERVER}    {extra}\n"


def lane(extra: str) -> str:
    """A good lane with one more line (line 8) of its own."""
    return f"{HEAD}services:\n  server:\n{SERVER}{extra}\n"


def watched(environment: str, spins: str, restart: str = '"no"') -> str:
    return (
        f"{HEAD}services:\n  server:\n{SERVER}    restart: {restart}\n    environment: {environment}\n"
        f"watchdog:\n  counters: /dev/shm/c\n  stall: 2s\n  mode: enforce\n  spins: {spins}\n"
    )


CASES: list[tuple[str, str, str, str]] = [
    # (lane text, line, path, words of the message or its hint)
    (service("modee: enforce"), "8", "services.server.modee", "unknown key"),
    (service("enviroment: {}"), "8", "services.server.enviroment", "did you mean environment?"),
    (service("command: {a: b}"), "8", "services.server.command", "must be a list, is a mapping"),
    (service("command: []"), "8", "services.server.command", "at least 1"),
    (service("command:"), "8", "services.server.command", "must be a list, is empty"),
    (service("command: serve 'x"), "8", "services.server.command", "cannot be split into words"),
    (service("command: [a, [b]]"), "8", "services.server.command[1]", "must be a word, is a list"),
    (service('command: "${paths.model}$"'), "8", "services.server.command[0]", "a lone $"),
    (service("command: [$HOME]"), "8", "services.server.command[0]", "write $$ for a dollar sign"),
    (service("command: ['${HOME}']"), "8", "services.server.command[0]", "${HOME} is not a name"),
    (service("command: ['${prot}']"), "8", "services.server.command[0]", "did you mean ${port}?"),
    (service("command: ['${path.model}']"), "8", "services.server.command[0]", "did you mean ${paths.model}?"),
    (service("command: ['${paths}']"), "8", "services.server.command[0]", "not a name a lane can use"),
    (service("command: ['${}']"), "8", "services.server.command[0]", "not a name a lane can use"),
    (service("command: ['x${args.extra}']"), "8", "services.server.command[0]", "can only be spliced"),
    (service('user: "*${args.extra}"'), "8", "services.server.user", "a splice belongs in a list"),
    (service("command: ['${secrets.hf}']"), "8", "services.server.command[0]", "only in environment values"),
    (
        service("environment: {'${secrets.hf}': x}"),
        "8",
        "services.server.environment.${secrets.hf}",
        "a variable's name",
    ),
    (service("environment: {A: '${secrets.hf} $${env_file:/a:B}'}"), "8", "services.server.environment.A", "reads as"),
    (service("environment: {A: '${secrets.hf} $${secrets.hf}'}"), "8", "services.server.environment.A", "reads as"),
    (service("environment: {A: '$${secrets.hf}'}"), "8", "services.server.environment.A", "reads as a reference"),
    (service("environment: {A: }"), "8", "services.server.environment.A", "has no value"),
    (service("environment: [A]"), "8", "services.server.environment[0]", "must be NAME=VALUE"),
    (service("environment: [A=1, A=2]"), "8", "services.server.environment[1]", "given twice"),
    (service("environment: {'A B': x}"), "8", "services.server.environment.A B", "a variable's name"),
    (service(f"environment: {{HF_TOKEN: {SECRET}}}"), "8", "services.server.environment.HF_TOKEN", "Hugging Face"),
    (
        service("environment: {DB_PASSWORD: correct-horse}"),
        "8",
        "services.server.environment.DB_PASSWORD",
        "${secrets.",
    ),
    (service("command: [--api-key, abcdefgh]"), "8", "services.server.command[1]", "a literal secret"),
    (service("command: [--api-key=abcdefgh]"), "8", "services.server.command[0]", "a literal secret"),
    (service("ipc: hots"), "8", "services.server.ipc", "did you mean host?"),
    (service("network_mode: container:x"), "8", "services.server.network_mode", "host or bridge or none"),
    (service("init: 'true'"), "8", "services.server.init", "true or false, without quotes"),
    (service("init: true").replace("name: small", "name: s"), "5", "services.server.container_name", "two or more"),
    (service("init: yes"), "8", "services.server.init", "true or false"),
    (service("restart: sometimes"), "8", "services.server.restart", "on-failure"),
    (service("restart: true"), "8", "services.server.restart", "must be no, always"),
    (service("stop_grace_period: 30"), "8", "services.server.stop_grace_period", "30 has no unit"),
    (service("stop_grace_period: 0s"), "8", "services.server.stop_grace_period", "longer than 0s"),
    (service("stop_grace_period: 2s1m"), "8", "services.server.stop_grace_period", "the largest first"),
    (service("stop_grace_period: 2 s"), "8", "services.server.stop_grace_period", "not a duration"),
    (service("stop_grace_period: 99d"), "8", "services.server.stop_grace_period", "longer than 30 days"),
    (service("shm_size: 8g"), "8", "services.server.shm_size", "g is not a unit"),
    (service("shm_size: -1"), "8", "services.server.shm_size", "not a size"),
    (service("shm_size: 0.3B"), "8", "services.server.shm_size", "whole number of bytes"),
    (service("shm_size: 9999999TiB"), "8", "services.server.shm_size", "larger than 1 EiB"),
    (service("ulimits: {memlock: lots}"), "8", "services.server.ulimits.memlock", "whole number"),
    (service("ulimits: {nofile: {soft: 5, hard: 4}}"), "8", "services.server.ulimits.nofile", "soft is above hard"),
    (service("ulimits: {nofile: {soft: 5}}"), "8", "services.server.ulimits.nofile", "needs the key hard"),
    (service("cap_add: [ipc_lock]"), "8", "services.server.cap_add[0]", "a capability"),
    (service("volumes: [data:/data]"), "8", "services.server.volumes[0]", "a source is a path"),
    (service("volumes: [/data]"), "8", "services.server.volumes[0]", "SOURCE:TARGET"),
    (service("volumes: [/a:b]"), "8", "services.server.volumes[0]", "a target is an absolute path"),
    (service("volumes: [/a:/b:z]"), "8", "services.server.volumes[0]", "the mode is ro or rw"),
    (service("volumes: [/a:/b, /c:/b]"), "8", "services.server.volumes[1]", "/b is mounted twice"),
    (service("volumes: [{type: volume, source: a, target: /a}]"), "8", "services.server.volumes[0].type", "bind"),
    (service("ports: ['80']"), "8", "services.server.ports[0]", "HOST:CONTAINER"),
    (service("ports: ['80:70000']"), "8", "services.server.ports[0]", "1 to 65535"),
    (service("ports: ['1.2.3:80:80']"), "8", "services.server.ports[0]", "1.2.3 is not an address"),
    (service("tmpfs: tmp"), "8", "services.server.tmpfs", "absolute path"),
    (service("user: null"), "8", "services.server.user", "has no value"),
    (service("depends_on: [sever]"), "8", "services.server.depends_on[0]", "there is no service sever"),
    (service("depends_on: [server]"), "8", "services.server.depends_on[0]", "depends on itself"),
    (service("logging: {driver: none}"), "8", "services.server.logging.driver", "json-file"),
    (service("facts: {kv: {log: 'a(', required: true}}"), "8", "services.server.facts.kv.log", "at position 1"),
    (service("facts: {kv: {log: 'a', at_least: 3}}"), "8", "services.server.facts.kv", "needs a group"),
    (service("facts: {kv: {log: '(a)', at_least: 3, at_most: 2}}"), "8", "services.server.facts.kv", "above at_most"),
    (service("facts: {kv: {log: '(a)', at_least: much}}"), "8", "services.server.facts.kv.at_least", "a number"),
    (service("memory: {above_idle: 1GiB}"), "8", "services.server.memory", "needs the key gpu"),
    (lane("map: {file: maps/m.json, mount: /m, services: [sever]}"), "8", "map.services[0]", "did you mean server?"),
    (lane("map: {file: maps/m.json, mount: /m, services: []}"), "8", "map.services", "names no service"),
    (lane("map: {file: maps/m.json, mount: m, services: [server]}"), "8", "map.mount", "an absolute path"),
    (lane("shm: [/dev/shm/a/b]"), "8", "shm[0]", "/dev/shm/NAME"),
    (lane("shm: [/etc/passwd]"), "8", "shm[0]", "/dev/shm/NAME"),
    (lane("shm: [/dev/shm/..]"), "8", "shm[0]", "/dev/shm/NAME"),
    (lane("requires: [map-cosin]"), "8", "requires[0]", "did you mean map-cosine?"),
    (lane("gates: {}"), "8", "gates", "must be a list"),
    (lane("measure: {profile: genral}"), "8", "measure.profile", "did you mean general?"),
    (lane("fallback: nothing"), "8", "fallback", "there is no lane nothing"),
    (lane("fallback: small"), "8", "fallback", "cannot fall back to itself"),
    (lane("drain: {idle_for: 10s}"), "8", "drain", "needs the key deadline"),
    (lane("variants: {check: [a]}"), "8", "variants.check", "must be a mapping, is a list"),
    (lane("max_model_len: '1048576'"), "8", "max_model_len", "without quotes"),
    (lane("max_model_len: 0"), "8", "max_model_len", "at least 1"),
    (lane("x-common: {}"), "8", "x-common", "unknown key"),
    (
        watched("{S: '5'}", "{service: server, variable: S, at_least: 9}"),
        "14",
        "services.server.environment.S",
        "at least 9",
    ),
    (
        watched("{S: 'x'}", "{service: server, variable: S, at_least: 9}"),
        "14",
        "services.server.environment.S",
        "a number",
    ),
    (
        watched("{}", "{service: server, variable: S, at_least: 9}"),
        "14",
        "services.server.environment.S",
        "must be given",
    ),
    (
        watched("{}", "{service: sever, variable: S, at_least: 9}"),
        "14",
        "watchdog.spins.service",
        "did you mean server?",
    ),
    (watched("{}", "{service: server}"), "14", "watchdog.spins", "needs the key variable"),
]


@pytest.mark.parametrize(("text", "line", "path", "words"), CASES, ids=lambda value: str(value)[-40:].strip())
def test_a_mistake_is_named_with_line_path_and_cure(
    tmp_path: Path, text: str, line: str, path: str, words: str
) -> None:
    problems = lane_problems(tmp_path, text)
    matching = [problem for problem in problems if problem.path == path and words in str(problem)]
    assert len(matching) == 1, problems
    assert matching[0].where == f"lanes/small.yaml:{line}"


def test_the_lane_of_these_cases_is_good_without_its_mistake(tmp_path: Path) -> None:
    assert lane_problems(tmp_path, service("init: true")) == []
    assert lane_problems(tmp_path, watched("{S: '9'}", "{service: server, variable: S, at_least: 9}")) == []


def test_no_problem_ever_shows_a_secret(tmp_path: Path) -> None:
    text = service(f"environment: [HF_TOKEN={SECRET}, 'A={SECRET}', '{SECRET}', 'PASSWORD=hunter2hunter2']")
    text += f"    command: [--api-key, {SECRET}, --token=tttttttttt]\n    user: {SECRET}\n    devices: ['{SECRET}']\n"
    problems = lane_problems(tmp_path, text)
    assert len(problems) == 8, problems
    assert not any(secret in str(problem) for problem in problems for secret in (SECRET, "hunter2", "tttttttttt"))


def test_the_typo_everything_wrong_is_said_at_once(tmp_path: Path) -> None:
    """Scenario 11: none of these may hide another, and all name their lines."""
    text = """\
lane: small
served_model: m
services:
  server:
    container_name: small
    image: vllm/vllm-openai:latest
    devices: ["nvidia.com/gpu=0"]
    ready: {models: true}
    ready: {health: /health}
\tinit: true
watchdog:
  counters: /dev/shm/c
  stall: 2m
  modee: enforce
"""
    problems = lane_problems(tmp_path, text)
    said = sorted((int(problem.where.rpartition(":")[2]), problem.path) for problem in problems)
    assert said == [
        (6, "services.server.image"),
        (7, "services.server.devices[0]"),
        (9, ""),  # ready is given twice
        (10, ""),  # a tab
        (12, "watchdog"),  # needs the key mode
        (14, "watchdog.modee"),
    ]
    assert "did you mean mode?" in str(next(problem for problem in problems if problem.path == "watchdog.modee"))


@pytest.mark.parametrize("name", ["0", "all", "12"])
def test_T31_an_index_is_refused_with_the_uuids_that_are_known(tmp_path: Path, name: str) -> None:
    (problem,) = lane_problems(tmp_path, service(f"devices: ['nvidia.com/gpu={name}']"))
    assert problem.path == "services.server.devices[0]"
    assert f"gb300 {GB300}" in problem.hint
    assert f"rtx {RTX}" in problem.hint


@pytest.mark.parametrize("device", ["/dev/nvidia0", "nvidia.com/gpu", "gpu=GPU-1", "nvidia.com/gpu=gb300"])
def test_T31_only_a_cdi_name_with_a_uuid_is_a_gpu(tmp_path: Path, device: str) -> None:
    (problem,) = lane_problems(tmp_path, service(f"devices: ['{device}']"))
    assert GB300 in problem.hint


def test_T31_without_any_gpu_in_station_yaml_the_hint_says_where_to_give_it(tmp_path: Path) -> None:
    station = "station: t\nengine: {kind: docker}\nports: {public: 1, trial: 2}\nimages: {engine: " + DIGEST + "}\n"
    (problem,) = lane_problems(tmp_path, service("devices: ['nvidia.com/gpu=0']"), station=station)
    assert "under gpus:" in problem.hint


@pytest.mark.parametrize(
    "command",
    [
        "[vllm, serve, --shutdown-timeout, '60']",
        "[vllm, serve, --shutdown-timeout=60]",
        "--timeout-graceful-shutdown 60.0",
    ],
)
@pytest.mark.parametrize(("grace", "good"), [("", False), ("60s", False), ("61s", True)])
def test_T53_the_grace_must_outlast_the_servers_own_shutdown(
    tmp_path: Path, command: str, grace: str, good: bool
) -> None:
    text = service(f"command: {command}") + (f"    stop_grace_period: {grace}\n" if grace else "")
    problems = lane_problems(tmp_path, text)
    assert [problem.path for problem in problems] == ([] if good else ["services.server.stop_grace_period"])
    if not good:
        assert "shutdown time of 60s" in problems[0].message


def test_a_cycle_is_shown_as_a_path(tmp_path: Path) -> None:
    text = LANE + "".join(
        f"  {name}: {{container_name: c{name}, image: '${{images.engine}}', depends_on: [{needs}]}}\n"
        for name, needs in (("a", "b"), ("b", "c"), ("c", "a"), ("d", "a"))
    )
    (problem,) = lane_problems(tmp_path, text)
    assert "a -> b -> c -> a" in problem.message


def test_exactly_one_service_answers_http(tmp_path: Path) -> None:
    two = LANE + "  other: {container_name: other, image: '${images.engine}', ready: {health: /h}}\n"
    (problem,) = lane_problems(tmp_path / "two", two)
    assert "server, other do" in problem.message
    (problem,) = lane_problems(tmp_path / "none", LANE.replace("models: true", "log: up"))
    assert "none does" in problem.message


def test_a_ready_that_waits_for_nothing_is_refused(tmp_path: Path) -> None:
    problems = lane_problems(tmp_path, LANE.replace("models: true", "timeout: 5s"))
    assert "says nothing to wait for" in problems[0].message


def test_a_service_of_the_host_network_publishes_nothing(tmp_path: Path) -> None:
    text = service("network_mode: host") + "    ports: ['80:80']\n"
    (problem,) = lane_problems(tmp_path, text)
    assert problem.path == "services.server.ports"
    assert problem.where.endswith(":9")


def test_a_watchdog_forbids_the_daemon_to_restart_anything(tmp_path: Path) -> None:
    (problem,) = lane_problems(tmp_path, watched("{S: '9'}", "{service: server, variable: S, at_least: 9}", "always"))
    assert problem.path == "services.server.restart"
    assert problem.where.endswith(":8")


def test_a_fallback_on_trip_needs_its_lane(tmp_path: Path) -> None:
    text = lane("watchdog: {counters: /dev/shm/c, stall: 2s, mode: observe, on_trip: fallback}")
    (problem,) = lane_problems(tmp_path, text)
    assert problem.path == "watchdog.on_trip"
    site = site_with(tmp_path, small=text + "fallback: other\n", other=LANE.replace("small", "other"))
    assert load_lane(site, "small", public=True).fallback == "other"


def test_two_services_cannot_share_a_container(tmp_path: Path) -> None:
    text = LANE + "  other: {container_name: small, image: '${images.engine}'}\n"
    (problem,) = lane_problems(tmp_path, text)
    assert problem.path == "services.other.container_name"


def test_a_name_that_lanectl_gives_to_parked_containers_is_refused(tmp_path: Path) -> None:
    (problem,) = lane_problems(tmp_path, LANE.replace("container_name: small", "container_name: a.parked.b"))
    assert problem.path == "services.server.container_name"


def test_the_map_and_a_volume_cannot_have_one_place(tmp_path: Path) -> None:
    text = service("volumes: ['/a:/m']") + "map: {file: maps/m.json, mount: /m, services: [server]}\n"
    (problem,) = lane_problems(tmp_path, text)
    assert problem.path == "map.mount"


@pytest.mark.parametrize(
    ("image", "words"),
    [
        ("vllm/vllm-openai", "a tag can mean another image"),
        ("vllm/vllm-openai:v0.32.0", "a tag can mean another image"),
        (f"vllm/vllm-openai:v0.32.0@{DIGEST}", "without a tag"),
        ("vllm@sha256:abcd", "64 small hex digits"),
        (DIGEST.upper(), "a tag can mean another image"),
        (DIGEST + "0", "64 small hex digits"),
        (f"env:/srv/env@{DIGEST}", "only the local engine"),
        (f"{DIGEST} ", ""),  # YAML drops the space: good
        (f"localhost:5000/a/b_c@{DIGEST}", ""),
        (f"vllm/vllm-openai@{DIGEST}", ""),
    ],
)
def test_images_are_named_by_what_they_are(tmp_path: Path, image: str, words: str) -> None:
    problems = lane_problems(tmp_path, LANE.replace("${images.engine}", image))
    assert [problem.path for problem in problems] == (["services.server.image"] if words else [])
    assert all(words in str(problem) for problem in problems)


def test_the_local_engine_wants_environments(tmp_path: Path) -> None:
    station = "station: t\nengine: {kind: local}\nports: {public: 1, trial: 2}\n"
    station += f"images: {{engine: 'env:/srv@{DIGEST}'}}\n"
    assert lane_problems(tmp_path / "env", LANE, station=station) == []
    (problem,) = lane_problems(tmp_path / "id", LANE.replace("${images.engine}", DIGEST), station=station)
    assert "env:/DIR@sha256:" in problem.hint


def test_a_lane_says_its_own_name(tmp_path: Path) -> None:
    (problem,) = lane_problems(tmp_path, LANE.replace("lane: small", "lane: smal"))
    assert problem == Problem("lanes/small.yaml:1", "says smal, but the file is small.yaml", "lane", "they must agree")


@pytest.mark.parametrize(
    "text", ["[]", "text", "services: 3", "services:", "lane: {}", "services: {server: 3}", "3: 4"]
)
def test_a_lane_of_another_shape_is_a_list_of_problems(tmp_path: Path, text: str) -> None:
    assert lane_problems(tmp_path, text)


def test_a_lane_of_a_thousand_services_is_refused_quickly(tmp_path: Path) -> None:
    text = LANE + "".join(f"  s{number}: {{depends_on: [x{number}]}}\n" for number in range(1000))
    (problem,) = lane_problems(tmp_path, text)
    assert "at most 32" in problem.message


def test_a_variant_keeps_its_places(tmp_path: Path) -> None:
    text = LANE + "variants:\n  check:\n    services:\n      server:\n        initt: true\n"
    assert lane_problems(tmp_path, text) == []
    (problem,) = lane_problems(tmp_path, text, label="small@check")
    assert problem.where == "lanes/small.yaml:12"
    assert problem.path == "services.server.initt"


def test_a_variant_cannot_change_the_name_or_the_variants(tmp_path: Path) -> None:
    text = LANE + "variants: {check: {lane: other, variants: {a: {}}}}\n"
    problems = lane_problems(tmp_path, text, label="small@check")
    assert [problem.path for problem in problems] == ["variants.check.lane", "variants.check.variants"]


def test_unknown_lanes_and_variants_are_usage_errors_with_the_nearest_name(tmp_path: Path) -> None:
    site = site_with(tmp_path, small=LANE + "variants: {check: {}}\n")
    for label, hint in (("smal", "small"), ("small@chek", "check"), ("../station", "small"), ("", "small")):
        with pytest.raises(LaneError) as caught:
            load_lane(site, label, public=True)
        assert caught.value.exit_code == ExitCode.USAGE
        assert hint in (caught.value.hint or "")
    with pytest.raises(LaneError, match="no variant"):
        load_lane(site, "small@", public=True)


def test_check_all_reads_every_lane_every_variant_and_what_lies_between(tmp_path: Path) -> None:
    other = LANE.replace("lane: small", "lane: other").replace("  server:", "  sidecar:")
    site = site_with(
        tmp_path,
        small=LANE + "variants: {check: {stable_for: soon}}\n",
        other=other,
        broken="a: [",
    )
    problems = check_all(site)
    assert [(problem.where, problem.path) for problem in problems] == [
        ("lanes/broken.yaml:2", ""),
        ("lanes/small.yaml:8", "stable_for"),
        ("lanes/small.yaml", "services.server.container_name"),
    ]
    assert "container of sidecar in lane other" in problems[2].message


def test_two_lanes_may_share_a_container_name_for_the_same_service(tmp_path: Path) -> None:
    site = site_with(tmp_path, small=LANE, other=LANE.replace("lane: small", "lane: other"))
    assert check_all(site) == []


def test_the_error_of_a_lane_has_all_its_problems(tmp_path: Path) -> None:
    site = site_with(tmp_path, STATION, small=service("initt: true") + "    ipcc: host\n")
    with pytest.raises(SpecError) as caught:
        load_lane(site, "small", public=False)
    assert len(caught.value.problems) == 2
    assert caught.value.exit_code == ExitCode.USAGE
    assert "lanes/small.yaml:8: services.server.initt: unknown key (did you mean init?)" in str(caught.value)
