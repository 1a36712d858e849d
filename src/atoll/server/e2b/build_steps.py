"""Translates the builds that E2B's clients ask for into atoll's terms."""

from __future__ import annotations

import re
from collections.abc import Mapping

from atoll.errors import UnsupportedError
from atoll.server.e2b.answers import Refusal
from atoll.server.e2b.image_names import BASE, mapped
from atoll.server.e2b.template_wire import AskedLogin, AskedStep, NewBuild
from atoll.types import (
    CopyStep,
    EnvStep,
    Limits,
    RegistryLogin,
    RunStep,
    Step,
    TemplateSpec,
    UserStep,
    WorkdirStep,
)

USER = "user"
HOME = "/home/user"
_JSON_KEY = "_json_key"
# Names that the home itself gives images: by their content, or for a team's own.
_OF_THIS_HOST = re.compile(r"sha256-|@")
# Clients expect the user `user`, who may become root, in every image that a template starts from.
_ACCOUNT = """
set -e
known=; id=1000
while IFS=: read -r name _ uid _; do
  [ "$name" = user ] && known=1
  [ "${uid:-0}" -ge "$id" ] && [ "$uid" -lt 60000 ] && id=$((uid + 1))
done < /etc/passwd
shell=/bin/sh; [ -x /bin/bash ] && shell=/bin/bash
if [ -z "$known" ]; then
  if command -v useradd > /dev/null; then useradd -m -U -u "$id" -s "$shell" user
  else echo "user:x:$id:$id::/home/user:$shell" >> /etc/passwd; echo "user:x:$id:" >> /etc/group; fi
fi
if [ -d /etc/sudoers.d ]; then echo 'user ALL=(ALL:ALL) NOPASSWD: ALL' > /etc/sudoers.d/user; fi
"""


def spec_of(asked: NewBuild, limits: Limits, table: Mapping[str, str]) -> TemplateSpec:
    """Return the template that a client asks for.

    Raises:
        Refusal: The request is invalid (400).
        UnsupportedError: The request needs something that this server lacks.
    """
    if asked.from_image and asked.from_template:
        raise Refusal(400, "Give either fromImage or fromTemplate")
    named = asked.from_image or BASE
    if _OF_THIS_HOST.match(named):
        raise Refusal(400, f"Invalid image: {named[:64]}")
    known = mapped(named, table)
    image = None if asked.from_template else known or named
    return TemplateSpec(
        image=image,
        login=_login(asked.from_image_registry) if asked.from_image_registry is not None else None,
        trusted_image=known is not None,
        public_image=known is None,
        template=asked.from_template,
        prepare=_prepared() if image not in (None, BASE) else [],
        steps=[_step(step) for step in asked.steps],
        start_command=asked.start_cmd or None,
        ready_command=asked.ready_cmd or None,
        limits=limits,
        force=bool(asked.force),
    )


def _login(asked: AskedLogin) -> RegistryLogin:
    match asked.type:
        case "registry" if asked.username:
            return RegistryLogin(username=asked.username, password=asked.password)
        case "gcp" if asked.service_account_json:
            return RegistryLogin(username=_JSON_KEY, password=asked.service_account_json)
        case "registry" | "gcp":
            raise Refusal(400, f"The credentials of type '{asked.type}' are incomplete")
        case "aws":
            raise UnsupportedError(
                "this server cannot exchange AWS keys for a registry's password: "
                "give the user 'AWS' and the output of `aws ecr get-login-password`"
            )
    raise Refusal(400, f"Invalid registry type: {asked.type}")


def archives_of(spec: TemplateSpec) -> set[str]:
    """Return the uploads that the template needs."""
    return {step.archive for step in spec.steps if isinstance(step, CopyStep) and step.archive}


def _prepared() -> list[Step]:
    return [RunStep(command=_ACCOUNT, user="root"), UserStep(user=USER), WorkdirStep(path=HOME)]


def _step(asked: AskedStep) -> Step:
    args, force = asked.args, bool(asked.force)
    match asked.type.upper():
        case "RUN" if 1 <= len(args) <= 2:
            return RunStep(command=args[0], user=_given(args, 1), force=force)
        case "ENV" if args and len(args) % 2 == 0:
            return EnvStep(env=dict(zip(args[::2], args[1::2], strict=True)), force=force)
        case "WORKDIR" if len(args) == 1:
            return WorkdirStep(path=args[0], force=force)
        case "USER" if len(args) == 1:
            return UserStep(user=args[0], force=force)
        case "COPY" if 2 <= len(args) <= 4:
            if not asked.files_hash:
                raise Refusal(400, "COPY needs a files hash")
            return CopyStep(
                sources=[args[0]],
                target=args[1],
                user=_given(args, 2),
                mode=_mode(_given(args, 3)),
                archive=asked.files_hash,
                force=force,
            )
    raise Refusal(400, f"Invalid step: {asked.type[:32]} with {len(args)} arguments")


def _given(args: list[str], index: int) -> str | None:
    return args[index] or None if len(args) > index else None


def _mode(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        mode = int(text, 8)
    except ValueError:
        mode = -1
    if not 0 <= mode <= 0o7777:
        raise Refusal(400, f"Invalid mode: {text[:16]}")
    return mode
