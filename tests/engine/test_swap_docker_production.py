"""Production on a real Docker engine: started by hand and adopted, with its image under attack, and its name taken."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from typing import Any

import docker
import pytest

from lanectl.core.container import Container, CreateArgs
from lanectl.core.journal import Kind
from lanectl.core.lane import Restart
from lanectl.errors import ExitCode
from tests.support.aftermath import is_back, serves_alone
from tests.support.docker_engine import DockerEngine
from tests.support.engine_images import LABEL, REPOSITORY_ROOT, python_binds
from tests.support.station import SERVER, SMALLEST, RealSite


@pytest.fixture
def api(docker_engine: DockerEngine) -> Iterator[docker.APIClient]:
    with docker.APIClient(docker_engine.url) as client:
        yield client


@pytest.fixture
def by_hand(on_docker: RealSite, docker_engine: DockerEngine) -> Container:
    """Production as it was months ago: `docker run --restart always`, no label of lanectl, a variable of its own."""
    name = on_docker.lane("prod")
    words = [word.replace("${host}", "127.0.0.1").replace("${port}", str(on_docker.public)) for word in SERVER]
    body: dict[str, Any] = {
        "Image": docker_engine.images["pyhost"],
        "Entrypoint": [sys.executable],
        "Cmd": [*words, *SMALLEST],
        "Env": ["TOKEN_OF_A_PERSON=hunter2"],
        "WorkingDir": str(REPOSITORY_ROOT),
        "HostConfig": {"NetworkMode": "host", "Binds": python_binds(), "RestartPolicy": {"Name": "always"}},
    }
    on_docker.engine.create(CreateArgs(name, body))
    on_docker.engine.start(name)
    on_docker.until_answers()
    return on_docker.seen(name)


def test_first_use_on_a_machine_that_never_saw_lanectl(on_docker: RealSite, by_hand: Container) -> None:
    """adopt, status, plan, swap: it comes back as the very same container, and nothing the operator had was changed."""
    site = on_docker
    before = _everything(site, by_hand)
    site.lane("cand")
    adopted = site.lanectl("adopt", by_hand.name)
    assert adopted.code == ExitCode.OK, adopted
    assert f"{by_hand.name} ({by_hand.id[:12]}) is recorded as production prod" in adopted.out
    assert "hunter2" not in adopted.out + adopted.err
    assert _everything(site, by_hand) == before

    status = site.lanectl("status")
    assert status.code == ExitCode.OK, status
    assert "prod" in status.out

    planned = site.lanectl("plan", "cand")
    assert planned.code == ExitCode.OK, planned
    assert by_hand.name in planned.out
    assert site.seen(by_hand.id) == by_hand

    swapped = site.lanectl("swap", "cand", "--yes")
    assert swapped.code == ExitCode.OK, swapped
    assert site.until_closed() == "proven"
    is_back(site, by_hand)
    assert site.seen(by_hand.id).restart == Restart("always")
    assert _everything(site, by_hand) == before
    told = [path for path in (site.root / "state").rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()]
    assert [path.parent.name for path in told] == ["recreate"]
    assert all(path.stat().st_mode & 0o077 == 0 for path in told)


def _everything(site: RealSite, container: Container) -> Any:
    """Return all that makes this container what it is."""
    return site.engine.recreate_args(container.id)


def test_adopted_production_that_was_removed_is_made_again_as_it_was(on_docker: RealSite, by_hand: Container) -> None:
    site = on_docker
    before = _everything(site, by_hand)
    site.lane("cand", faults="boot-delay=1")
    assert site.lanectl("adopt", by_hand.name).code == ExitCode.OK
    begun = site.begin("swap", "cand", "--yes")
    site.until_record(Kind.BEGIN, "ready:server")
    site.engine.remove(by_hand.id)
    assert begun.ended().code == ExitCode.OK
    assert site.until_closed() == "proven"
    serves_alone(site, by_hand.name)
    again = site.seen(by_hand.name)
    assert again.id != by_hand.id
    assert _everything(site, again) == before


@pytest.fixture
def own_image(api: docker.APIClient, docker_engine: DockerEngine) -> Iterator[tuple[str, str]]:
    """An image of this test's own with a tag, and the label that a prune can be limited to. Ask for it before the site,
    whose containers must go first."""
    label = f"{LABEL}.prune={uuid.uuid4().hex}"
    made = api.create_container(docker_engine.images["pyhost"], ["-"], name=f"lt-{uuid.uuid4().hex[:8]}-image")
    tag = f"lanectl-test-prune:{uuid.uuid4().hex[:12]}"
    changes = [f"LABEL {label.replace('=', ' ')}"]
    image = api.commit(made["Id"], *tag.split(":"), changes=changes)["Id"]
    api.remove_container(made["Id"])
    yield image, label
    for name in api.inspect_image(image)["RepoTags"] if _there(api, image) else ():
        api.remove_image(name, force=True)
    if _there(api, image):
        api.remove_image(image, force=True)


def _there(api: docker.APIClient, image: str) -> bool:
    return any(one["Id"] == image for one in api.images(all=True))


def _prune(api: docker.APIClient, label: str, *, all_unused: bool) -> None:
    """`docker image prune`, with `-a` where asked, among this test's own images only."""
    api.prune_images(filters={"dangling": not all_unused, "label": [label]})


def test_T42_a_prune_of_all_unused_images_does_not_take_the_parked_one(
    own_image: tuple[str, str], on_docker: RealSite, api: docker.APIClient
) -> None:
    site, (image, label) = on_docker, own_image
    production = site.produce(image=image)
    site.lane("cand", faults="boot-delay=1")
    begun = site.begin("swap", "cand", "--yes")
    site.until_record(Kind.BEGIN, "ready:server", swaps=2)
    _prune(api, label, all_unused=True)
    assert begun.ended().code == ExitCode.OK
    assert site.until_closed() == "proven"
    is_back(site, production)


def test_T42_the_keep_tag_saves_an_image_whose_tag_and_container_are_gone(
    own_image: tuple[str, str], on_docker: RealSite, api: docker.APIClient
) -> None:
    """A new image took the tag, somebody removed the parked container, and `docker image prune` ran."""
    site, (image, label) = on_docker, own_image
    production = site.produce(image=image)
    site.lane("cand", faults="boot-delay=1")
    begun = site.begin("swap", "cand", "--yes")
    site.until_record(Kind.BEGIN, "ready:server", swaps=2)
    for tag in api.inspect_image(image)["RepoTags"]:
        if not tag.startswith("lanectl-keep:"):
            api.remove_image(tag, noprune=True)
    site.engine.remove(production.id)
    _prune(api, label, all_unused=False)
    done = begun.ended()
    assert done.code == ExitCode.OK, done
    assert site.until_closed() == "proven"
    serves_alone(site, production.name)
    assert site.seen(production.name).image_id == image


def test_T42_image_and_container_gone_is_dark_and_recover_works_once_the_image_is_there_again(
    own_image: tuple[str, str], on_docker: RealSite, api: docker.APIClient
) -> None:
    site, (image, label) = on_docker, own_image
    site.say(thresholds={"restore_attempts": 1})
    production = site.produce(image=image)
    saved = b"".join(api.get_image(image))
    site.lane("cand", faults="boot-delay=1")
    begun = site.begin("swap", "cand", "--yes")
    site.until_record(Kind.BEGIN, "ready:server", swaps=2)
    site.engine.remove(production.id)
    _prune(api, label, all_unused=True)
    assert not _there(api, image)
    done = begun.ended()
    assert done.code == ExitCode.DARK, done
    assert image in done.out
    assert "lanectl recover" in done.out
    again = site.lanectl("swap", "cand", "--yes")
    assert again.code == ExitCode.DARK, again
    assert image in again.err
    api.load_image(saved)
    recovered = site.lanectl("recover")
    assert recovered.code == ExitCode.OK, recovered
    serves_alone(site, production.name)
    assert site.seen(production.name).image_id == image


def test_a_container_that_took_productions_name_is_not_taken_for_it(
    on_docker: RealSite, docker_engine: DockerEngine
) -> None:
    """Somebody ran `docker run --name` from shell history while production was parked."""
    site = on_docker
    site.say(thresholds={"restore_attempts": 1})
    production = site.produce()
    site.lane("cand", faults="boot-delay=1")
    begun = site.begin("swap", "cand", "--yes")
    site.until_record(Kind.BEGIN, "ready:server", swaps=2)
    stranger = {
        "Image": docker_engine.images["busybox"],
        "Cmd": ["sleep", "1000"],
        "StopSignal": "SIGKILL",
        "Labels": {LABEL: "stranger"},
        "HostConfig": {"NetworkMode": "none"},
    }
    site.engine.create(CreateArgs(production.name, stranger))
    site.engine.start(production.name)
    done = begun.ended()
    assert done.code == ExitCode.DARK, done
    assert production.name in done.out
    stranger_now = site.seen(production.name)
    assert stranger_now.running, "it is somebody's, and was left alone"
    site.engine.remove(stranger_now.id)
    assert site.lanectl("recover").code == ExitCode.OK
    is_back(site, production)
