"""`${family.name}` in a lane: what station.yaml says, the listen address, and references to secrets.

The line between wrong and incomplete: a family that does not exist is an error. A known family without that name is
what station.yaml does not give *yet*: the text stays as it is and the lane is incomplete.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from lanectl.core.site import Missing, Site
from lanectl.site.tree import nearest

# What reveal() replaces at the moment a container is made. Literal text must never look like it.
SECRET_REFERENCE = re.compile(r"\$\{secrets\.([^{}:]+)\}")
ENV_FILE_REFERENCE = re.compile(r"\$\{env_file:([^{}]+):([^{}:]+)\}")

SPLICE = re.compile(r"\*\$\{args\.([^{}]+)\}")
_REFERENCE = re.compile(r"\$(?:\$|\{([^{}]*)\})?")
FAMILIES = ("args", "gpus", "host", "images", "paths", "port", "secrets")
_ADDRESS = ("host", "port")


class WrongName(ValueError):
    """A reference that can never mean anything. `hint` says what was probably meant."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Resolved:
    """Text with its names resolved. `missing`: what station.yaml does not give yet. `secret`: it refers to one."""

    text: str
    missing: tuple[Missing, ...] = ()
    secret: bool = False


class Names:
    """The names one lane can use, for one listen address."""

    def __init__(self, site: Site, host: str, port: int) -> None:
        self.address = {"host": host, "port": str(port)}
        self.args = site.args
        self.secrets = site.secrets
        self.uuids = {role: gpu.uuid for role, gpu in site.gpus.items()}
        self.texts: dict[str, Mapping[str, str]] = {"gpus": self.uuids, "images": site.images, "paths": site.paths}

    def resolve(self, text: str, where: str) -> Resolved:
        """Given text as written, return it with names replaced and `$$` as `$`. Raise `WrongName`."""
        missing: list[Missing] = []
        out: list[str] = []
        position, secrets = 0, 0
        for match in _REFERENCE.finditer(text):
            out.append(text[position : match.start()])
            position = match.end()
            name = match.group(1)
            if match.group() == "$$":
                out.append("$")
            elif name is None:
                raise WrongName("a lone $", "write $$ for a dollar sign, ${family.name} for a value of station.yaml")
            else:
                secrets += name.startswith("secrets.")
                out.append(self.value(name, where, missing))
        out.append(text[position:])
        plain = "".join(out)
        if len(SECRET_REFERENCE.findall(plain)) > secrets or ENV_FILE_REFERENCE.search(plain):
            raise WrongName("text that reads as a reference to a secret", "use ${secrets.NAME}, without $$")
        return Resolved(plain, tuple(missing), secrets > 0)

    def value(self, name: str, where: str, missing: list[Missing]) -> str:
        """Return what `${name}` stands for; when it is missing, note it and return the reference itself."""
        if name in self.address:
            return self.address[name]
        family, dot, key = name.partition(".")
        if family not in FAMILIES or family in _ADDRESS or not dot or not key:
            raise WrongName(f"${{{name}}} is not a name a lane can use", _family_hint(family, key))
        if family == "args":
            raise WrongName(
                f"${{{name}}} is a list; it can only be spliced", f'write "*${{{name}}}" as one item of a list'
            )
        if family == "secrets":
            if key not in self.secrets:
                missing.append(lacking(name, where, self.secrets))
            return f"${{{name}}}"
        known_texts = self.texts[family]
        if key not in known_texts:
            missing.append(lacking(name, where, known_texts))
            return f"${{{name}}}"
        return known_texts[key]

    def splice(self, name: str, where: str) -> tuple[str, ...] | Missing:
        """Return the words of `args.NAME`, or what is missing."""
        if name not in self.args:
            return lacking(f"args.{name}", where, self.args)
        return self.args[name]


def _family_hint(family: str, key: str) -> str:
    forms = {item: item if item in _ADDRESS else f"{item}.{key or 'NAME'}" for item in FAMILIES}
    near = get_close_matches(family, FAMILIES, n=1)
    return f"did you mean ${{{forms[near[0]]}}}?" if near else f"known: {', '.join(forms.values())}"


def lacking(name: str, where: str, known: Mapping[str, object]) -> Missing:
    """Return the note that station.yaml does not give `name` (family.key), naming the known key it may have meant."""
    family, _, key = name.partition(".")
    hint = f"station.yaml: give {key} under {family}:"
    near = nearest(key, known)
    return Missing(name, where, f"{hint} ({near})" if near.startswith("did you mean") else hint)
