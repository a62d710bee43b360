"""The help of commands: bare lines, wrapped by words at any width; an option's text stands in one column.

Examples come last. A test parses each of them.
"""

from __future__ import annotations

from textwrap import wrap
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from cyclopts.help import PlainFormatter

from harborage.cli.main import fit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cyclopts.help import HelpEntry, HelpPanel
    from rich.console import Console, ConsoleOptions

EXAMPLES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "run": (
            'harborage run "Which files here talk about tides?" --model ollama:qwen3',
            'harborage run agent.py "Order what runs out" --cost 2',
            'harborage run agent.py "And the salt, too" --continue',
            'git diff | harborage run reviewer.py "What is risky?" --attach -',
        ),
        "chat": ("harborage chat", "harborage chat support.py --continue"),
        "resume": ("harborage resume", "harborage resume Q7TX2M"),
        "models": ("harborage models list", "harborage models pull smollm2"),
        "runs": (
            "harborage runs list --status waiting",
            "harborage runs show Q7TX2M --full",
        ),
        "pending": ("harborage pending", "harborage pending --check || notify-send 'harborage waits for you'"),
        "doctor": ("harborage doctor", "harborage doctor --all --json"),
        "approve": (
            "harborage approve Q7TX2M",
            "harborage approve Q7TX2M --args '{\"count\": 12}' --reason 'half is enough'",
        ),
        "reject": ("harborage reject Q7TX2M --reason 'the photo is missing'",),
        "answer": ('harborage answer Q7TX2M "the second one"',),
        "message": ('harborage message Q7TX2M "use the cheaper carrier"',),
        "redirect": ('harborage redirect Q7TX2M "only the tea"',),
        "inject": ("harborage inject Q7TX2M '{\"budget\": 400}'",),
        "pause": ("harborage pause Q7TX2M",),
        "cancel": ("harborage cancel Q7TX2M", "harborage cancel last --now"),
        "prioritize": ("harborage prioritize Q7TX2M 9",),
        "steer": ('harborage steer Q7TX2M user_message "use the cheaper carrier"',),
        "events": ("harborage events --url http://127.0.0.1:18080 --follow",),
        "tasks": ("harborage tasks --url http://127.0.0.1:18080",),
        "inspect": ("harborage inspect Q7TX2M --url http://127.0.0.1:18080",),
        "topology": ("harborage topology Q7TX2M --url http://127.0.0.1:18080",),
        "replay": ("harborage replay Q7TX2M", "harborage replay Q7TX2M --agent restock.py"),
        "fork": (
            "harborage fork Q7TX2M --at 5 --model anthropic:claude-sonnet-4-5",
            "harborage fork Q7TX2M --at 3 --live",
        ),
        "freeze": ("harborage freeze Q7TX2M",),
        "dev": ("harborage dev", "harborage dev support.py"),
        "serve": ("harborage serve support.py --keys keys.json",),
        "mcp-server": ("harborage mcp-server support.py",),
        "acp": ("harborage acp support.py",),
        "token": ("harborage token --new-key key.pem", "harborage token --key key.pem --tenant acme --user ada"),
        "version": ("harborage version",),
    }
)
"""What a person may paste, by command; other commands have theirs in their own text."""


def examples_of(command: str) -> str | None:
    """The examples of a command as the end of its help; None where its own text has them."""
    return "\n".join(f"  {one}" for one in EXAMPLES[command]) if command in EXAMPLES else None


_NARROW: Final = 72
_MOST_LABEL: Final = 24
_TITLES: Final = MappingProxyType({"Parameters": "Options", "Commands": "Commands"})


class BareHelp(PlainFormatter):
    """Writes help without boxes."""

    def render_description(self, console: Console, options: ConsoleOptions, description: Any) -> None:
        text = getattr(getattr(description, "primary_renderable", description), "plain", "")
        if text:
            self._print_plain(console, fit(text.rstrip("\n"), console.width))
            console.print()

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        entries = [one for one in panel.entries if one.display_labels]
        if not entries:
            return
        title = str(panel.title)
        lines = [_TITLES.get(title, title)]
        labels = [_label(one, is_option=panel.format == "parameter") for one in entries]
        column = 0 if console.width < _NARROW else min(_MOST_LABEL, max(map(len, labels)))
        for label, entry in zip(labels, entries, strict=True):
            lines += _rows(label, _text(entry, console), column, console.width)
        self._print_plain(console, "\n".join(lines))
        console.print()


def _label(entry: HelpEntry, *, is_option: bool) -> str:
    return ", ".join(entry.display_labels_with_metavar if is_option else entry.display_labels)


def _rows(label: str, text: str, column: int, width: int) -> list[str]:
    """The lines of one option: its text in the column behind the labels, or below a label that is wider."""
    if not column:
        indent = " " * 4
        return [f"  {label}", *(f"{indent}{row}" for row in wrap(text, max(20, width - 4), break_on_hyphens=False))]
    indent = " " * (column + 4)
    rows = wrap(text, max(20, width - len(indent)), break_on_hyphens=False) or [""]
    if len(label) > column:
        return [f"  {label}", *(f"{indent}{row}".rstrip() for row in rows)]
    return [f"  {label:{column}}  {rows[0]}".rstrip(), *(f"{indent}{row}" for row in rows[1:])]


def _text(entry: HelpEntry, console: Console) -> str:
    """The text of an option with what it may be, and what it is without."""
    described = getattr(getattr(entry.description, "primary_renderable", entry.description), "plain", entry.description)
    parts = [" ".join(str(described or "").split())]
    if entry.choices:
        parts.append(f"[{', '.join(entry.choices)}]")
    if entry.default is not None:
        parts.append(f"[default: {entry.default}]")
    if entry.required:
        parts.append("[required]")
    return " ".join(part for part in parts if part)
