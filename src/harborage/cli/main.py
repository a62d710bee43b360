"""`harborage`: finds the command and turns what goes wrong into one line and an exit code.

It starts fast, since it is started often: help and version are answered from the table below, and a command's own
module is imported when that command is run. This file must not import the runtime.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cyclopts import App

__all__ = ["COMMANDS", "main"]

COMMANDS: dict[str, tuple[str, str, str]] = {
    "answer": (
        "harborage.cli.answer:answer",
        "RUN|TOKEN TEXT [OPTIONS]",
        "Answer a run's question, or resolve an interrupted call.",
    ),
    "approve": ("harborage.cli.approve:approve", "RUN|TOKEN [OPTIONS]", "Approve what a run waits for."),
    "cancel": ("harborage.cli.cancel:cancel", "RUN [OPTIONS]", "End a run that is not over."),
    "doctor": ("harborage.cli.doctor:doctor", "[OPTIONS]", "Check the database, list pending work, repair stuck runs."),
    "fork": ("harborage.cli.fork:fork", "RUN --at STEP [OPTIONS]", "Start a new run from any step of another."),
    "freeze": ("harborage.cli.freeze:freeze", "RUN [OPTIONS]", "Turn a run into a test that passes offline."),
    "message": ("harborage.cli.message:message", "RUN TEXT [OPTIONS]", "Send a run a message, or answer it."),
    "models": ("harborage.cli.models:models", "list | pull NAME", "List or fetch models that run on this machine."),
    "reject": ("harborage.cli.reject:reject", "RUN|TOKEN [OPTIONS]", "Reject what a run waits for."),
    "replay": ("harborage.cli.replay:replay", "RUN [OPTIONS]", "Run a recorded run again, offline, and compare."),
    "resume": ("harborage.cli.resume:resume", "[RUN] [OPTIONS]", "Resume a run that is not over, in this terminal."),
    "run": ("harborage.cli.run:run", "[AGENT] GOAL [OPTIONS]", "Run an agent towards a goal, in this terminal."),
    "runs": ("harborage.cli.runs:runs", "list | show RUN [OPTIONS]", "List the runs that are kept, or show one."),
    "version": ("harborage.cli.version:version", "", "Print the version."),
}
"""Every command: where it lives, what it takes, and what it does in one line."""

_USAGE = """\
Usage: harborage COMMAND [ARGUMENTS]

Runs AI agents as long-lived, observable, interruptible work.

Commands:
{commands}

Options:
  --help, -h  Show this, or what a command takes: harborage COMMAND --help.
  --version   Print the version.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that `argv` names, by default this process's own arguments; returns its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        match words:
            case [] | ["--help" | "-h" | "help"]:
                sys.stdout.write(_help())
                return 0
            case ["help", str(name)] if name in COMMANDS:
                return _call([name, "--help"])
            case ["--version"]:
                from harborage.cli.version import version

                return version()
            case _:
                return _call(words)
    except KeyboardInterrupt:
        return 130


def _help() -> str:
    width = max(map(len, COMMANDS))
    return _USAGE.format(commands="\n".join(f"  {name:{width}}  {text}" for name, (_, _, text) in COMMANDS.items()))


def _call(words: list[str]) -> int:
    from cyclopts import CycloptsError, UnusedCliTokensError

    try:
        code = app()(words, exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        known = words[0] if words[0] in COMMANDS else ""
        place = f"harborage {known}" if known else "harborage"
        unused = error.unused_tokens if isinstance(error, UnusedCliTokensError) else None
        text = f"Unexpected argument: {' '.join(unused)}" if unused else str(error)
        sys.stderr.write(f"harborage: {_one_line(text)} See '{place} --help'.\n")
        return 2
    return code if isinstance(code, int) else 0


def app() -> App:
    """All commands, as cyclopts parses them; none of their modules is imported by this."""
    from cyclopts import App

    from harborage import __version__

    commands = App(name="harborage", version=__version__, help_format="plaintext")
    for name, (target, takes, _) in COMMANDS.items():
        commands.command(target, name=name, usage=f"Usage: harborage {name} {takes}".rstrip())
    return commands


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if line.endswith((".", "?", "!")) else f"{line}."


if __name__ == "__main__":
    sys.exit(main())
