"""How does a shell complete commands of `pulse`? With a script that this command prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pulse.cli.options import Command

if TYPE_CHECKING:
    from pulse.cli.session import Session

VARIABLE = "_PULSE_COMPLETE"
SHELLS = ("bash", "zsh", "fish")


@click.command(cls=Command, short_help="Print a script that lets your shell complete commands.")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_obj
@click.pass_context
def completion(ctx: click.Context, session: Session, /, shell: str) -> None:
    """Print a script that lets SHELL complete commands, flags and states.

    The script runs `pulse` to find completions. It does not use a database.

    \b
    Examples:
      pulse completion bash > ~/.local/share/bash-completion/completions/pulse
      pulse completion zsh > ~/.zfunc/_pulse    with fpath+=~/.zfunc in ~/.zshrc
      pulse completion fish > ~/.config/fish/completions/pulse.fish
      source <(pulse completion bash)           for this shell only
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None  # click has all of SHELLS
    script = kind(ctx.find_root().command, {}, "pulse", VARIABLE).source()
    session.answer({"shell": shell, "script": script}, lambda: click.echo(script))
