"""Screens: lines that stay, a region that changes, and nothing left behind."""

from __future__ import annotations

import io
import sys

import pytest
from rich.console import Console
from rich.text import Text

from harborage.cli.live import LiveScreen, PlainScreen


def terminal(width: int = 40) -> tuple[Console, io.StringIO]:
    """A console that believes it is a terminal, and what it wrote."""
    file = io.StringIO()
    return Console(file=file, force_terminal=True, width=width, height=10, color_system=None), file


def test_lines_go_above_the_region() -> None:
    """Lines are written in order, and the region is drawn below them again."""
    console, file = terminal()
    screen = LiveScreen(console, lambda width: [Text(f"region of {width}")])
    screen.show([Text("one"), Text("two")])
    screen.close()
    text = file.getvalue()
    assert text.index("one") < text.index("two") < text.rindex("region of 40")


def test_a_line_is_cut_or_wrapped_as_it_wants() -> None:
    """A line that must not wrap is cut at the edge; another goes on below."""
    console, file = terminal(10)
    screen = LiveScreen(console, lambda width: [])
    screen.show([Text("a" * 30, no_wrap=True, overflow="ellipsis"), Text("b" * 30)])
    screen.close()
    assert file.getvalue().count("a") == 9
    assert file.getvalue().count("b") == 30


def test_a_closed_screen_gives_everything_back() -> None:
    """Closing shows the cursor again, gives the streams back, and may be done twice; lines can still be written."""
    console, file = terminal()
    streams = sys.stdout, sys.stderr
    screen = LiveScreen(console, lambda width: [Text("region")])
    assert sys.stdout is not streams[0]
    screen.close()
    screen.close()
    assert (sys.stdout, sys.stderr) == streams
    assert file.getvalue().rindex("\x1b[?25h") > file.getvalue().rindex("\x1b[?25l")
    screen.refresh()
    screen.show([Text("after")])
    assert file.getvalue().endswith("after\n")


def test_a_suspended_screen_is_out_of_the_way() -> None:
    """While another program has the terminal nothing is drawn; afterwards the region is there again."""
    console, file = terminal()
    screen = LiveScreen(console, lambda width: [Text("region")])
    with screen.suspended():
        size = len(file.getvalue())
        screen.refresh()
        assert len(file.getvalue()) == size
    assert "region" in file.getvalue()[size:]
    screen.close()


def test_a_plain_screen_writes_lines_whole() -> None:
    """Without a terminal lines are neither cut nor wrapped, and there is no region."""
    file = io.StringIO()
    screen = PlainScreen(Console(file=file, width=20))
    with screen.suspended():
        screen.show([Text("x" * 50)])
    screen.refresh()
    screen.close()
    assert file.getvalue() == "x" * 50 + "\n"


@pytest.mark.parametrize(("is_urgent", "text"), [(True, "now\n"), (False, "")])
def test_a_quiet_screen_writes_what_is_urgent(is_urgent: bool, text: str) -> None:
    """Somebody who wants to see nothing still sees what is asked."""
    file = io.StringIO()
    PlainScreen(Console(file=file), is_quiet=True).show([Text("now")], is_urgent=is_urgent)
    assert file.getvalue() == text
