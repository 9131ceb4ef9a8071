"""Secrets: kept as references everywhere, revealed only in the body a container is made from.

No message of this module holds a secret or a line of a file that holds one.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from typing import Any

from lanectl.core.site import SecretRef
from lanectl.errors import ExitCode, LaneError
from lanectl.site.tree import nearest

MAX_BYTES = 256 * 1024  # an environment entry cannot be longer than 128 KiB on Linux (MAX_ARG_STRLEN)
_REFERENCE = re.compile(r"\$\{(?:secrets\.([^{}:]+)|env_file:([^{}]+):([^{}:]+))\}")


def reveal(body: Mapping[str, Any], secrets: Mapping[str, SecretRef], environ: Mapping[str, str]) -> dict[str, Any]:
    """Given a create body with references, return a copy with the secrets in their place.

    Raise `LaneError`: exit 2 for a name station.yaml does not give, exit 3 for a variable that is not set or a file
    that cannot be used (not there, not a file, readable by others).
    """
    vault = _Vault(secrets, environ)
    return {key: vault.fill(value) for key, value in body.items()}


def reveal_text(text: str, secrets: Mapping[str, SecretRef], environ: Mapping[str, str]) -> str:
    """Given text with references, return it with the secrets in their place. Raise as `reveal`."""
    revealed: str = _Vault(secrets, environ).fill(text)
    return revealed


def env_file_keys(path: str) -> tuple[str, ...]:
    """Given a file of NAME=VALUE lines, return its names in order. Raise `LaneError` as `reveal`."""
    return tuple(_env_file(path))


class _Vault:
    """One revealing: every file is read once."""

    def __init__(self, secrets: Mapping[str, SecretRef], environ: Mapping[str, str]) -> None:
        self.secrets = secrets
        self.environ = environ
        self.files: dict[str, dict[str, str]] = {}

    def fill(self, value: Any) -> Any:
        if isinstance(value, str):
            return _REFERENCE.sub(self.replace, value)
        if isinstance(value, Mapping):
            return {key: self.fill(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.fill(item) for item in value]
        return value

    def replace(self, match: re.Match[str]) -> str:
        name, path, key = match.groups()
        return self.secret(name) if name else self.file_entry(path, key)

    def secret(self, name: str) -> str:
        ref = self.secrets.get(name)
        if ref is None:
            raise LaneError(f"secret {name}: station.yaml does not give it", nearest(name, self.secrets) or None)
        if ref.file is not None:
            return _secret_file(name, ref.file)
        value = self.environ.get(ref.env or "")
        if not value:
            raise LaneError(
                f"secret {name}: the variable {ref.env} is not set",
                f"export {ref.env}, or give station.yaml a 0600 file: secrets: {{{name}: {{file: …}}}}",
                ExitCode.REFUSED,
            )
        return value

    def file_entry(self, path: str, key: str) -> str:
        if path not in self.files:
            self.files[path] = _env_file(path)
        if key not in self.files[path]:
            raise LaneError(f"{path}: {key} is no longer in it", "add it, or take it out of the lane", ExitCode.REFUSED)
        return self.files[path][key]


def _secret_file(name: str, path: str) -> str:
    text = _private_text(path, f"secret {name}").rstrip("\r\n")
    if not text:
        raise LaneError(f"secret {name}: {path} is empty", "write the secret into it", ExitCode.REFUSED)
    return text


def _env_file(path: str) -> dict[str, str]:
    """Read NAME=VALUE lines. Blank lines and lines starting with # are left out; matching quotes around a value go."""
    entries: dict[str, str] = {}
    for number, raw in enumerate(_private_text(path, "env_file").split("\n"), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals or re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.]*", name) is None:
            raise LaneError(f"{path}:{number}: not NAME=VALUE", "one variable a line, # for comments", ExitCode.USAGE)
        quoted = len(value) >= 2 and value[0] == value[-1] and value[0] in "'\""
        entries[name] = value[1:-1] if quoted else value
    return entries


def _private_text(path: str, what: str) -> str:
    """Return the text of a file that only its owner can read."""
    try:
        # Non-blocking, so that a pipe in the file's place cannot hold the swap up.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            _check_private(os.fstat(descriptor), path, what)
            data = os.read(descriptor, MAX_BYTES + 1)
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise LaneError(f"{what}: {path}: {reason}", "check the path in the spec", ExitCode.REFUSED) from None
    if len(data) > MAX_BYTES:
        raise LaneError(f"{what}: {path} is larger than {MAX_BYTES} bytes", "is it the right file?", ExitCode.REFUSED)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise LaneError(f"{what}: {path} is not UTF-8 text", "is it the right file?", ExitCode.REFUSED)
    return text


def _check_private(status: os.stat_result, path: str, what: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise LaneError(f"{what}: {path} is not a regular file", "give a file", ExitCode.REFUSED)
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o077:
        raise LaneError(
            f"{what}: {path} has mode {mode:04o}, others can read it", f"chmod 600 {path}", ExitCode.REFUSED
        )
