"""`harborage`: finds the command, and turns wrong use into one line and an exit code.

It is started often, so it starts fast: help and version are answered from the table below, and a command's own module
is imported when that command is used. This file must not import the runtime.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cyclopts import App

COMMANDS: dict[str, tuple[str, str, str]] = {
    "run": ("harborage.cli.run:run", "[AGENT] GOAL [OPTIONS]", "Run an agent towards a goal, in this terminal."),
    "chat": ("harborage.cli.chat:chat", "[AGENT] [OPTIONS]", "Talk with an agent, in this terminal."),
    "resume": ("harborage.cli.run:resume", "[RUN] [OPTIONS]", "Resume a run that has not ended, in this terminal."),
    "init": ("harborage.cli.init:init", "[NAME] [OPTIONS]", "Make a project that works at once."),
    "scaffold": ("harborage.cli.init:scaffold", "--name NAME [OPTIONS]", "Make a project around a configuration."),
    "validate": ("harborage.cli.validate:validate", "[PATH] [OPTIONS]", "Check a configuration file."),
    "models": ("harborage.cli.models:models", "list | pull NAME", "List or download models for this machine."),
    "runs": ("harborage.cli.runs:runs", "list | show RUN [OPTIONS]", "List the kept runs, or show one."),
    "pending": ("harborage.cli.pending:pending", "[OPTIONS]", "List what waits for a person."),
    "doctor": ("harborage.cli.doctor:doctor", "[OPTIONS]", "Check the database and list pending work."),
    "approve": ("harborage.cli.controls:approve", "RUN|TOKEN [OPTIONS]", "Approve the call that a run waits for."),
    "reject": ("harborage.cli.controls:reject", "RUN|TOKEN [OPTIONS]", "Reject the call that a run waits for."),
    "answer": (
        "harborage.cli.controls:answer",
        "RUN|TOKEN TEXT [OPTIONS]",
        "Answer a question, or resolve an interrupted call.",
    ),
    "message": ("harborage.cli.controls:message", "RUN TEXT [OPTIONS]", "Send a message to a run."),
    "redirect": ("harborage.cli.steer:redirect", "RUN GOAL [OPTIONS]", "Give a run another goal."),
    "inject": ("harborage.cli.steer:inject", "RUN JSON [OPTIONS]", "Give a run's planner context."),
    "pause": ("harborage.cli.steer:pause", "RUN [OPTIONS]", "Pause a run at its next step."),
    "cancel": ("harborage.cli.controls:cancel", "RUN [OPTIONS]", "Cancel a run."),
    "prioritize": ("harborage.cli.steer:prioritize", "RUN NUMBER [OPTIONS]", "Change the priority of a run."),
    "steer": ("harborage.cli.steer:steer", "RUN CONTROL [TEXT] [OPTIONS]", "Send one of the nine controls to a run."),
    "events": ("harborage.cli.events:events", "[RUN] [OPTIONS]", "Show the events of a server, also as they come."),
    "tasks": ("harborage.cli.inspect:tasks", "[OPTIONS]", "List the tasks of a server."),
    "inspect": ("harborage.cli.inspect:inspect", "RUN [OPTIONS]", "Show what a run on a server did, by its events."),
    "topology": ("harborage.cli.topology:topology", "RUN [OPTIONS]", "Show the tree of what a run on a server did."),
    "replay": ("harborage.cli.history:replay", "RUN [OPTIONS]", "Replay a run offline, and compare."),
    "fork": ("harborage.cli.history:fork", "RUN --at STEP [OPTIONS]", "Start a new run from any step of another."),
    "freeze": ("harborage.cli.history:freeze", "RUN [OPTIONS]", "Turn a run into a test that passes offline."),
    "dev": ("harborage.cli.serve:dev", "[AGENTS] [OPTIONS]", "Serve agents on this machine, and reload their code."),
    "serve": ("harborage.cli.serve:serve", "[AGENTS] --keys FILE [OPTIONS]", "Serve agents over HTTP."),
    "mcp-server": (
        "harborage.cli.mcp_server:mcp_server",
        "[AGENTS] [OPTIONS]",
        "Offer agents to the MCP client that starts this.",
    ),
    "acp": (
        "harborage.cli.acp:acp",
        "[AGENTS] [OPTIONS]",
        "Serve agents to an editor, over standard input and output.",
    ),
    "token": ("harborage.cli.token:token", "[OPTIONS]", "Sign a token for a client of a server."),
    "completion": ("harborage.cli.completion:completion", "bash | zsh | fish", "Print completions for a shell."),
    "version": ("harborage.cli.main:version", "", "Print the version."),
}
"""Every command: the function that it calls, its arguments, and its help in one line."""

HIDDEN: dict[str, tuple[str, str]] = {
    "inspect-events": ("harborage.cli.events:inspect_events", "[OPTIONS]"),
    "inspect-runs": ("harborage.cli.inspect:inspect_runs", "[RUN] [OPTIONS]"),
    "inspect-topology": ("harborage.cli.topology:inspect_topology", "RUN [OPTIONS]"),
}
"""Commands that help does not list: names that scripts of the original use."""

PINNED = frozenset({"init", "scaffold", "validate", "events", "tasks", "inspect", "topology"})
"""Commands whose exit codes the protocol pins, beside the hidden ones: wrong use of them ends with 1."""

STDIN = "/dev/stdin"
"""What a - among the words of `run` stands for; the parser takes a - for an option."""

_GROUPS = {
    "Work": ("run", "chat", "resume", "init", "scaffold", "models"),
    "Look": ("pending", "runs", "events", "tasks", "inspect", "topology", "doctor"),
    "Answer": ("approve", "reject", "answer"),
    "Steer": ("message", "redirect", "inject", "pause", "cancel", "prioritize", "steer"),
    "History": ("replay", "fork", "freeze"),
    "Serve": ("dev", "serve", "mcp-server", "acp", "token", "validate"),
    "Other": ("completion", "version"),
}

_USAGE = """\
Usage: harborage COMMAND [ARGUMENTS]

Run agents as durable work that people can watch, steer and approve.

{commands}

Options
  --help, -h  Show this, or with a command its arguments and options.
  --version   Print the version.

  harborage run "Which files here talk about tides?" --model ollama:qwen3
  harborage run agent.py "Order what runs out"
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
                return version()
            case _:
                return _call(words)
    except KeyboardInterrupt:
        return 130


def version() -> int:
    """Print the version."""
    from harborage import __version__

    sys.stdout.write(f"harborage {__version__}\n")
    return 0


def _help() -> str:
    width = max(map(len, COMMANDS))
    groups = []
    for title, names in _GROUPS.items():
        groups += [title, *(f"  {name:{width}}  {COMMANDS[name][2]}" for name in names)]
    return fit(_USAGE.format(commands="\n".join(groups)), _columns())


def _columns() -> int:
    """The width of the terminal that standard output is; 80 when it is none."""
    try:
        return int(os.environ.get("COLUMNS", "")) or 80
    except ValueError:
        pass  # it is not set, as usual
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def fit(text: str, width: int) -> str:
    """Return `text` as it is if its lines fit into `width` columns, else wrapped by words.

    Paragraphs are joined before; an indented line is wrapped by itself, under its second column.
    """
    if all(len(line) <= width for line in text.splitlines()):
        return text
    rows: list[str] = []
    paragraph: list[str] = []
    for line in [*text.splitlines(), ""]:
        if line and not line.startswith(" "):
            paragraph.append(line)
            continue
        rows += wrap(" ".join(paragraph), width, break_on_hyphens=False)
        paragraph.clear()
        rows += wrap(line, width, subsequent_indent=" " * _second_column(line), break_on_hyphens=False) or [""]
    return "\n".join(rows[:-1]) + ("\n" if text.endswith("\n") else "")


def _second_column(line: str) -> int:
    found = re.match(r" *(?:\S+|\S+, \S+) {2,}", line)
    return len(line) - len(line.lstrip()) + 2 if found is None else found.end()


def _call(words: list[str]) -> int:
    from cyclopts import CycloptsError, UnusedCliTokensError

    if words[0] == "run":
        words = [STDIN if word == "-" else word for word in words]
    try:
        code = app()(words, exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        name = words[0] if words[0] in COMMANDS or words[0] in HIDDEN else ""
        command = f"harborage {name}" if name else "harborage"
        unused = error.unused_tokens if isinstance(error, UnusedCliTokensError) else None
        text = f"Unexpected argument: {' '.join(unused)}" if unused else str(error)
        text = re.sub(r"(Did you mean .*\?) Available commands: .*", r"\1", text, flags=re.DOTALL)
        if name in PINNED or name in HIDDEN:
            from harborage.cli.pinned import INVOCATION_ERROR, fail

            return fail(name, _one_line(text), INVOCATION_ERROR, hint=f"{command} --help")
        sys.stderr.write(f"harborage: {_one_line(text)} See '{command} --help'.\n")
        return 2
    return code if isinstance(code, int) else 0


def app() -> App:
    """All commands, as cyclopts parses them; this imports none of their modules."""
    from cyclopts import App

    from harborage import __version__
    from harborage.cli.help import BareHelp, examples_of

    commands = App(name="harborage", version=__version__, help_format="plaintext", help_formatter=BareHelp())
    for name, (target, takes, _) in COMMANDS.items():
        usage = f"Usage: harborage {name} {takes}".rstrip()
        commands.command(target, name=name, usage=usage, help_epilogue=examples_of(name))
    for name, (target, takes) in HIDDEN.items():
        commands.command(target, name=name, usage=f"Usage: harborage {name} {takes}", show=False)
    return commands


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if line.endswith((".", "?", "!")) else f"{line}."


if __name__ == "__main__":
    sys.exit(main())
