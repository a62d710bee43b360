"""`harborage completion`: a script for each shell that knows every command and its options."""

from __future__ import annotations

import subprocess

import pytest

from harborage.cli.main import COMMANDS, main
from tests.kit.tables import each_row

_ASK = """
source /dev/stdin
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _harborage; echo "${{COMPREPLY[@]}}"
"""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_knows_every_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """And the options of each; it goes to stdout alone."""
    assert main(["completion", shell]) == 0
    script, noise = capsys.readouterr()
    assert noise == ""
    assert [name for name in COMMANDS if name not in script] == []
    assert "--max-cost" in script or "max-cost" in script


@each_row("words, offered", [("harborage app", "approve"), ("harborage run --max-c", "--max-cost")])
def test_bash_completes_commands_and_options(words: str, offered: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With the script that is printed, as the shell asks it."""
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    ask = _ASK.format(words=words)
    done = subprocess.run(["bash", "-c", ask], input=script, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [offered]


def test_an_unknown_shell_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    """It is named, with those that there are."""
    assert main(["completion", "ksh"]) == 2
    assert '"ksh"' in capsys.readouterr().err
