"""`harborage completion`: the script that lets a shell complete commands and options."""

from __future__ import annotations

import sys
from typing import Annotated, Literal

from cyclopts import Parameter

_SHELL = "The shell: bash, zsh or fish."


def completion(shell: Annotated[Literal["bash", "zsh", "fish"], Parameter(help=_SHELL)], /) -> int:
    """Print the script that completes commands and options in a shell.

    Put it where the shell looks for such scripts, for example:

      bash  eval "$(harborage completion bash)" in ~/.bashrc
      zsh   harborage completion zsh > ~/.zfunc/_harborage
      fish  harborage completion fish | source

    Exit codes:
      0  done
      2  wrong use: no such shell
    """
    from harborage.cli.main import app

    sys.stdout.write(app().generate_completion(prog_name="harborage", shell=shell).rstrip("\n") + "\n")
    return 0
