"""Finding the agent that a command line names."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harborage.app import Agent, AgentNotReadyError, TargetError, load_agent

HEAD = "from harborage.app import Agent, AgentNotReadyError\nfrom harborage.planner.finish import FinishPlanner\n"


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Imports of one test are forgotten before the next; modules are looked for in the test's folder."""
    before = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def write(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HEAD + "\n".join(lines) + "\n", "utf-8")
    return path


def test_a_file_holds_an_agent(tmp_path: Path) -> None:
    """By its path, absolute or relative; without an attribute the one called `agent`."""
    path = write(
        tmp_path / "mine.py",
        "agent = Agent(name='one', planner=FinishPlanner())",
        "two = Agent(name='two', planner=FinishPlanner())",
    )
    assert load_agent(str(path)).name == "one"
    assert load_agent("mine.py").name == "one"
    assert load_agent("./mine.py:two").name == "two"
    assert load_agent(f"{path}:two").name == "two"


def test_a_module_holds_an_agent(tmp_path: Path) -> None:
    """By its dotted name."""
    write(tmp_path / "pack" / "__init__.py")
    write(tmp_path / "pack" / "inner.py", "agent = Agent(name='inner', planner=FinishPlanner())")
    assert load_agent("pack.inner").name == "inner"
    assert load_agent("pack.inner:agent").name == "inner"


def test_a_function_is_called_for_its_agent(tmp_path: Path) -> None:
    """Each time anew, so that no two share a planner."""
    write(tmp_path / "made.py", "def agent():", "    return Agent(name='made', planner=FinishPlanner())")
    first, second = load_agent("made.py"), load_agent("made.py:agent")
    assert first.name == second.name == "made"
    assert first.planner is not second.planner


def test_an_agent_that_is_not_ready_says_so_itself(tmp_path: Path) -> None:
    """Its own words come out, not ours."""
    write(tmp_path / "later.py", "def agent():", "    raise AgentNotReadyError('set MODEL_KEY')")
    with pytest.raises(AgentNotReadyError, match="set MODEL_KEY"):
        load_agent("later.py")


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("", ["give a file"]),
        (":agent", ["give a file"]),
        ("nowhere.py", ["no file", "nowhere.py"]),
        ("folder/", ["no file"]),
        ("no.such.module", ["No module named", "spelling"]),
        ("typo.py", ["importing it failed", "SyntaxError"]),
        ("crash.py", ["importing it failed", "LookupError: at import"]),
        ("needs.py", ["No module named", "surely_not_installed", "install it"]),
        ("bare.py", ["no 'agent' in it", "define `agent = Agent(…)`"]),
        ("named.py", ["no 'agent' in it", "it has first, second"]),
        ("named.py:third", ["no 'third' in it", "it has first, second"]),
        ("wrong.py", ["it is a int, not a harborage.app.Agent"]),
        ("raises.py", ["making the agent failed", "ValueError: no key"]),
        ("needy.py", ["making the agent failed", "TypeError"]),
    ],
)
def test_what_names_no_agent_says_why(tmp_path: Path, target: str, words: list[str]) -> None:
    """Target, reason, and what to do about it."""
    write(tmp_path / "typo.py", "agent =")
    write(tmp_path / "crash.py", "raise LookupError('at import')")
    write(tmp_path / "needs.py", "import surely_not_installed")
    write(tmp_path / "bare.py")
    write(
        tmp_path / "named.py", *(f"{name} = Agent(name='x', planner=FinishPlanner())" for name in ("second", "first"))
    )
    write(tmp_path / "wrong.py", "agent = 3")
    write(tmp_path / "raises.py", "def agent():", "    raise ValueError('no key')")
    write(tmp_path / "needy.py", "def agent(key):", "    return key")
    with pytest.raises(TargetError) as caught:
        load_agent(target)
    assert caught.value.target == target
    assert all(word in str(caught.value) for word in [repr(target), *words]), str(caught.value)


def test_types_of_a_file_can_be_read_back(tmp_path: Path) -> None:
    """Tools with types of their own need their module to be found again."""
    write(
        tmp_path / "typed.py",
        "import msgspec",
        "from harborage.tools import tool",
        "class Place(msgspec.Struct):",
        "    name: str",
        "async def go(place: Place) -> Place:",
        "    return place",
        "agent = Agent(name='typed', planner=FinishPlanner(), tools=[tool(go)])",
    )
    found = load_agent("typed.py")
    assert isinstance(found, Agent)
    assert found.tools[0].tool.name == "go"
