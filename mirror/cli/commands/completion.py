"""``mirror completion``: the script by which a shell completes the command line."""

from __future__ import annotations

import enum
from typing import Annotated

import typer
from typer._completion_shared import get_completion_script  # Typer has no public name for it

from mirror.cli.options import COMPLETES


class Shell(enum.StrEnum):
    """The shells that are completed."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, typer.Argument(help="The shell that is to complete.")]) -> None:
    """Print the script by which a shell completes commands, options, files, and the flows of the configuration.

    In ~/.bashrc or ~/.zshrc: eval "$(mirror completion bash)". Of fish, it is ~/.config/fish/completions/mirror.fish.
    """
    print(get_completion_script(prog_name="mirror", complete_var=COMPLETES, shell=shell.value))
