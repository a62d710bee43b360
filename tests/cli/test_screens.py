"""The screens of the terminal at four widths, as a person sees them: a real terminal, read by an emulator.

The screens are kept in `tests/data/screens`; `UPDATE_SCREENS=1` writes them again, to be reviewed by eye.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from harborage.cli.terminal import columns
from tests.cli.conftest import Terminal
from tests.kit.emulator import Emulator

SCREENS = Path(__file__).resolve().parents[1] / "data" / "screens"
WIDTHS = pytest.mark.parametrize("width", [60, 80, 120, 200])
AGENT = '''
from harborage import Agent, tool
from harborage.testing import call, script

ANSWER = """Ordered, both **before Friday**:

| Item | Boxes | Price |
|:-----|------:|------:|
| Tea  |    12 | €11.40 |
| Salt |     8 |  €2.10 |

Both come with `Lumen`, which is €18 cheaper than Noord, two days later, and the only carrier that comes on a Sunday.
"""

@tool(effects="read")
async def look(item: str) -> str:
    """Look what is there."""
    return f"{item}: 3 boxes"

@tool(effects="external", approval="always")
async def place_order(item: str, count: int, carrier: str) -> str:
    """Order boxes of an item."""
    return "order 4411"

agent = Agent(
    "restock",
    tools=[look, place_order],
    model=script(
        [call("look", item="tea"), call("look", item="salt")],
        call("place_order", item="tea", count=20, carrier="Lumen"),
        ANSWER,
    ),
)
'''
FAMILY = '''
from harborage import Agent, tool
from harborage.testing import call, script

@tool(effects="read")
async def search_docs(q: str) -> str:
    """Search the documents."""
    return "6 pages"

@tool(effects="read")
async def fetch_quote(carrier: str) -> str:
    """Ask a carrier for its price."""
    if carrier == "Noord":
        raise ValueError("no price")
    return "38 euros"

@tool(effects="write", approval="always")
async def edit_file(path: str, text: str) -> str:
    """Write a file."""
    return "written"

TEXT = "\\n".join(f"- line {number} of what changed in this version" for number in range(1, 41))

researcher = Agent(
    "researcher",
    description="Compares carriers",
    tools=[search_docs, fetch_quote],
    model=script(
        call("search_docs", q="carriers Lyon"),
        [call("fetch_quote", carrier="Noord"), call("fetch_quote", carrier="Lumen")],
        "Lumen, 18 euros less",
    ),
)
agent = Agent(
    "family",
    tools=[edit_file],
    agents=[researcher],
    model=script(
        call("researcher", goal="Compare carriers for 40 kg to Lyon"),
        call("edit_file", path="CHANGELOG.md", text=TEXT),
        "It is *written*.",
    ),
)
'''
ADA = {"LOGNAME": "ada", "USER": "ada", "PAGER": "cat"}
GOAL = "Restock whatever runs out before Friday; under $400"


@pytest.fixture
def restock(tmp_path: Path) -> str:
    """The file of an agent that looks, asks and orders."""
    (tmp_path / "restock.py").write_text(AGENT, "utf-8")
    return "restock.py"


def screen_of(terminal: Terminal, width: int) -> str:
    """What a person sees in the end; what differs from run to run is replaced."""
    seen = Emulator(width)
    seen.feed(terminal.raw)
    assert all(columns(line) <= width for line in seen.text.splitlines()), seen.text
    text = re.sub(r"\b[0-9A-HJKMNP-TV-Z]{26}\b", lambda _: "R" * 26, seen.text)
    text = re.sub(r"\b[0-9A-HJKMNP-TV-Z]{6}\b", "HANDLE", text)
    text = re.sub(r"\bcli-\w+…", "cli-…", text)
    text = re.sub(r"\b\d+(?:\.\d+)? (?:ms|s)\b(?: in all)?", "T s", text)
    text = re.sub(r"\d\d:\d\d(?::\d\d)?|\d{4}-\d\d-\d\d", "TIME", text)
    text = text.replace("  (T s)", "")  # a moment that took no millisecond is not shown
    text = re.sub(r" {2,}(?=T s|HANDLE)", "  ", text)
    text = re.sub(r", ?\w*…\)", ", …)", text)  # arguments are cut where the time leaves room
    text = re.sub(r'="[^"\n]*…\)', '="…)', text)
    # A column is as wide as its widest time, and a goal is cut where the others leave room.
    text = re.sub(r"(?<=[A-Z]{3}) {2,}(?=[A-Z]{3,4}\b)", "  ", text)
    return re.sub(r"(Restock whatever)[^\n]*…", r"\1…", text)


def held(name: str, width: int, shown: str) -> None:
    """Compare a screen with the one that is kept."""
    path = SCREENS / f"{name}-{width}.txt"
    if os.environ.get("UPDATE_SCREENS"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(shown, "utf-8")
    assert shown == path.read_text("utf-8")


@WIDTHS
def test_a_run_from_its_goal_to_its_answer(
    width: int, at_terminal: Callable[..., Terminal], restock: str, tmp_path: Path
) -> None:
    """Two calls at once, a question, its answer, and the answer of the run; then the lists of it."""
    size = (40, width)
    terminal = at_terminal("run", restock, GOAL, size=size, **ADA)
    terminal.expect("? y/n/e/r ›")
    terminal.type("y\r")
    assert terminal.end() == 0
    held("run", width, screen_of(terminal, width))
    listings = {
        "list": ("runs", "list"),
        "full": ("runs", "show", "last", "--full"),
        "pending": ("pending",),
    }
    for name, words in listings.items():
        listing = at_terminal(*words, size=size, **ADA)
        assert listing.end() == 0
        held(name, width, screen_of(listing, width))


@WIDTHS
def test_a_child_and_a_long_question(width: int, at_terminal: Callable[..., Terminal], tmp_path: Path) -> None:
    """A child is one row; a long question scrolls below its title, and is approved once its end was in view."""
    (tmp_path / "family.py").write_text(FAMILY, "utf-8")
    terminal = at_terminal("run", "family.py", GOAL, size=(24, width), **ADA)
    terminal.expect(" more before y")
    terminal.expect("edit_file? n/e ›")
    terminal.type("y\r")
    terminal.expect("read it to its end first")
    terminal.expect("edit_file? n/e ›")
    held("diff", width, re.sub(r"step \d+.*", "step N", screen_of(terminal, width)))
    terminal.type(" " * 9)
    terminal.expect("y/n/e/r ›")
    terminal.type("y\r")
    assert terminal.end() == 0
    held("children", width, screen_of(terminal, width))


@WIDTHS
def test_help_and_wrong_use(width: int, at_terminal: Callable[..., Terminal]) -> None:
    """The help of the command line and of a command, and what is said of a word that is none."""
    for name, words, code in (
        ("help", ("--help",), 0),
        ("help-approve", ("approve", "--help"), 0),
        ("wrong", ("pendng",), 2),
    ):
        terminal = at_terminal(*words, size=(60, width))
        assert terminal.end() == code
        held(name, width, screen_of(terminal, width))
