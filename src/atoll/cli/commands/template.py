"""``atoll template``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from atoll import Templates
from atoll.cli.batch import for_each
from atoll.cli.lazy_commands import Group
from atoll.cli.leases import Length
from atoll.cli.limit_options import limit_options, limits
from atoll.cli.options import complete_sandbox, json_option, pairs_option
from atoll.cli.output import show_json
from atoll.cli.sandboxes import held
from atoll.cli.text import age, plain, size, table
from atoll.errors import InvalidSpecError
from atoll.toolkits import SHIPPED, install
from atoll.types import BuildInfo, BuildLine, TemplateInfo
from atoll.types.internal import DEFAULT_TAG


@click.group(name="template", cls=Group)
def command() -> None:
    """Build, list and delete templates: named states that sandboxes start from."""


@command.command(name="build")
@click.argument("directory", metavar="[DIR]", default=".", type=click.Path(exists=True, file_okay=False))
@click.option("-f", "--file", "dockerfile", metavar="FILE", help="The Dockerfile; default: DIR/Dockerfile.")
@click.option("--name", metavar="NAME[:TAG]", help="Name of the template; default: the name of DIR.")
@click.option("--tag", "tags", metavar="TAG", multiple=True, help="Another tag for the build; repeatable.")
@click.option(
    "--ready", "ready_command", metavar="LINE", help="Shell line that exits with 0 once the program is ready."
)
@click.option("--target", metavar="STAGE", help="The stage to build; default: the last one.")
@pairs_option("--build-arg", text="Value of an ARG; repeatable.")
@click.option("--no-cache", "force", is_flag=True, help="Run every step again, even if it was built before.")
@click.option(
    "--timeout",
    "timeout_s",
    type=Length(off=False),
    default="1h",
    show_default=True,
    metavar="LENGTH",
    help="Time limit for all steps together.",
)
@limit_options
@json_option
def build(directory: str, dockerfile: str | None, as_json: bool, **options: Any) -> None:
    r"""Build a template from a Dockerfile, and print its name with each tag. The steps run in a sandbox. The CMD
    runs in every sandbox made from the template.

    \b
    Example:
      atoll template build --name web --ready 'curl -sf http://localhost:8000' .
      atoll create --template web
    """
    root = Path(directory).resolve()
    path = _dockerfile(root, dockerfile)
    parsed = Templates.from_dockerfile(path, dict(options["build_arg"]), options["target"])
    parsed.check_sources(root)
    for note in parsed.notes:
        click.echo(f"{path.name}: {note}", err=True)
    spec = parsed.spec(ready_command=options["ready_command"], limits=limits(options), force=options["force"])
    name = options["name"] or root.name.lower()
    info = Templates.build(
        spec,
        name,
        tags=options["tags"],
        context=root,
        on_line=None if as_json else _shown,
        timeout_s=options["timeout_s"],
    )
    if as_json:
        show_json(info)
    else:
        for called in names_of(name.partition(":")[0], info):
            click.echo(called)


@command.command(name="install")
@click.argument("name", type=click.Choice(sorted(SHIPPED)))
@click.option(
    "--language",
    "languages",
    metavar="NAME",
    multiple=True,
    help="A further language to install: r or java; repeatable.",
)
@click.option("--team", metavar="TEAM", help="The team that owns it; default: none.")
@click.option("--public", is_flag=True, default=None, help="Let every team of a server use it.")
@json_option
def install_template(
    name: str, languages: tuple[str, ...], team: str | None, public: bool | None, as_json: bool
) -> None:
    r"""Build a template that atoll ships. It takes packages from registries, and minutes the first time.

    \b
    Example:
      atoll template install code-interpreter-v1 --language r
      atoll create --template code-interpreter-v1
    """
    info = install(name, languages=languages, team=team, public=public, on_line=None if as_json else _shown)
    if as_json:
        show_json(info)
    else:
        click.echo(name)


@command.command(name="ls")
@click.option("--team", metavar="TEAM", help="List only what this team owns.")
@json_option
def list_templates(team: str | None, as_json: bool) -> None:
    r"""List templates.

    \b
    Example:
      atoll template ls
    """
    infos = Templates.list(team=team)
    if as_json:
        show_json(infos)
        return
    now_s = time.time()
    rows = [
        [
            info.template_id,
            _name(info),
            ",".join(info.tags) or "-",
            info.builds[-1].state if info.builds else "-",
            "yes" if info.public else "no",
            age(info.changed_at, now_s),
        ]
        for info in infos
    ]
    click.echo(table(["ID", "NAME", "TAGS", "LAST BUILD", "PUBLIC", "CHANGED"], rows))


@command.command(name="delete")
@click.argument("templates", metavar="TEMPLATE...", nargs=-1, required=True)
@json_option
def delete_templates(templates: tuple[str, ...], as_json: bool) -> None:
    r"""Delete templates. Files that sandboxes still use are deleted with the last of these sandboxes.

    \b
    Example:
      atoll template delete web
    """
    for_each(templates, Templates.delete, as_json=as_json, shown=lambda done: {"deleted": list(done)})


@command.command(name="tag")
@click.argument("template", metavar="NAME[:TAG]")
@click.argument("tags", metavar="TAG...", nargs=-1, required=True)
@click.option("--remove", is_flag=True, help="Remove the tags instead.")
@json_option
def tag_template(template: str, tags: tuple[str, ...], remove: bool, as_json: bool) -> None:
    r"""Add tags to a build, or remove tags.

    \b
    Example:
      atoll template tag web:default v1 stable
    """
    if remove:
        Templates.untag(template, tags)
    else:
        Templates.tag(template, tags)
    if as_json:
        show_json(Templates.get(template.partition(":")[0]))


@command.command(name="publish")
@click.argument("template")
@click.option("--private", is_flag=True, help="Let only its own team use it.")
@json_option
def publish_template(template: str, private: bool, as_json: bool) -> None:
    r"""Let every team create sandboxes from a template.

    \b
    Example:
      atoll template publish web
    """
    info = Templates.publish(template, not private)
    if as_json:
        show_json(info)


@command.command(name="prune")
@json_option
def prune_steps(as_json: bool) -> None:
    r"""Delete the stored steps of builds. Print what this freed, and what stays and why. Templates stay.

    \b
    Example:
      atoll template prune
    """
    pruned = Templates.forget_steps()
    if as_json:
        show_json(pruned)
        return
    erased = f"erased {pruned.snapshots} of their states, {size(pruned.freed_bytes)}"
    click.echo(f"forgot {pruned.steps} steps, {erased}")
    for reason in pruned.kept:
        click.echo(f"kept: {plain(reason)}")


@command.command(name="record")
@click.argument("source", metavar="SANDBOX", shell_complete=complete_sandbox)
@click.argument("name", metavar="NAME[:TAG]")
@click.option("--snapshot", "is_snapshot", is_flag=True, help="SANDBOX is a snapshot instead.")
@click.option("--tag", "tags", metavar="TAG", multiple=True, help="Another tag for it; repeatable.")
@json_option
def record(source: str, name: str, is_snapshot: bool, tags: tuple[str, ...], as_json: bool) -> None:
    r"""Make a template of a sandbox as it is now, memory and disk, or of a snapshot. The sandbox keeps running.

    \b
    Example:
      atoll template record work ready
      atoll create --template ready
    """
    if is_snapshot:
        recorded = Templates.record(name, source, tags=tags)
    else:
        with held(source) as sandbox:
            recorded = Templates.record(name, sandbox, tags=tags)
    if as_json:
        show_json(recorded)
    else:
        click.echo(recorded.template_id)


def _dockerfile(root: Path, named: str | None) -> Path:
    """Return the path of the Dockerfile. A ``named`` file begins at the current directory."""
    path = Path(named) if named else root / "Dockerfile"
    if path.is_file():
        return path
    if named and (root / named).is_file():
        hint = f"give -f {root / named}: the path begins at the current directory, not at DIR"
    elif named:
        hint = "-f takes the path of a Dockerfile, from the current directory"
    else:
        hint = "name another file with -f; `atoll docs templates` shows one"
    raise InvalidSpecError(f"there is no Dockerfile {path}", hint=hint)


def names_of(name: str, build: BuildInfo) -> list[str]:
    """Return what `atoll create --template` takes for a build: the template's name, with each of its tags."""
    return [name if tag == DEFAULT_TAG else f"{name}:{tag}" for tag in build.tags or [DEFAULT_TAG]]


def _shown(line: BuildLine) -> None:
    if line.level != "debug":
        click.echo(plain(line.message), err=True)


def _name(info: TemplateInfo) -> str:
    name = info.name or "-"
    return f"{info.team}/{name}" if info.team else name
