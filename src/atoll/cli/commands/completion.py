"""``atoll completion``."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from atoll.cli.lazy_commands import Command


@click.command(name="completion", cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    r"""Print the script that lets a shell complete commands, options and sandboxes.

    \b
    Example:
      eval "$(atoll completion bash)"
      atoll completion fish > ~/.config/fish/completions/atoll.fish
    """
    completion = get_completion_class(shell)
    if completion is None:
        raise click.UsageError(f"there is no completion for {shell}", ctx)
    click.echo(completion(ctx.find_root().command, {}, "atoll", "_ATOLL_COMPLETE").source())
