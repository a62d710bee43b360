"""Finding the agent that a command line names."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harborage.app import Agent, AgentNotReadyError, TargetError, is_target, load_agent, refuse_mistyped
from harborage.app.target import importable

HEAD = "from harborage.app import Agent, AgentNotReadyError\nfrom harborage.planner.finish import FinishPlanner\n"


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Imports of one test are forgotten before the next; modules are looked for in the test's folder."""
    before = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    # Modules of the package stay: another test may hold what it imported from them.
    for name in set(sys.modules) - before:
        if not name.startswith("harborage."):
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
        ("folder/", ["is a folder", "name a file in it"]),
        ("exits.py", ["importing it failed", "exits.py:3: it ends the process", "__main__"]),
        ("leaves.py", ["making the agent failed", "leaves.py:4: it ends the process"]),
        ("no.such.module", ["No module named", "spelling"]),
        ("typo.py", ["importing it failed", "SyntaxError"]),
        ("crash.py", ["importing it failed", "crash.py:3: LookupError: at import"]),
        ("deep.py", ["importing it failed", "crash.py:3: LookupError: at import"]),
        ("reads.py", ["importing it failed", "reads.py:4: FileNotFoundError"]),
        ("parses.py", ["importing it failed", "parses.py:4: JSONDecodeError"]),
        ("crsh.py", ["no file", "did you mean crash.py?"]),
        ("needs.py", ["No module named", "surely_not_installed", "install it"]),
        ("bare.py", ["no 'agent' in it", "define `agent = Agent(…)`"]),
        ("named.py", ["no 'agent' in it", "it has first, second"]),
        ("named.py:third", ["no 'third' in it", "it has first, second"]),
        ("wrong.py", ["it is of type int, not a harborage.app.Agent"]),
        ("raises.py", ["making the agent failed", "raises.py:4: ValueError: no key"]),
        ("needy.py", ["making the agent failed", "TypeError"]),
        ("runs.py", ["runs.py:4: it runs an agent as it is loaded; put that below `if __name__ == '__main__':`"]),
        ("blocks.py", ["blocks.py:3: it runs an agent as it is loaded; put that below `if __name__ == '__main__':`"]),
    ],
)
def test_what_names_no_agent_says_why(tmp_path: Path, target: str, words: list[str]) -> None:
    """Target, reason, and what to do about it."""
    (tmp_path / "folder").mkdir()
    write(tmp_path / "exits.py", "raise SystemExit(3)")
    write(tmp_path / "leaves.py", "def agent():", "    raise SystemExit")
    write(tmp_path / "typo.py", "agent =")
    write(tmp_path / "crash.py", "raise LookupError('at import')")
    write(tmp_path / "deep.py", "import crash")
    write(tmp_path / "reads.py", "from pathlib import Path", "Path('nowhere').read_text()")
    write(tmp_path / "parses.py", "import json", "json.loads('{')")
    write(tmp_path / "needs.py", "import surely_not_installed")
    write(tmp_path / "bare.py")
    write(
        tmp_path / "named.py", *(f"{name} = Agent(name='x', planner=FinishPlanner())" for name in ("second", "first"))
    )
    write(tmp_path / "wrong.py", "agent = 3")
    write(tmp_path / "raises.py", "def agent():", "    raise ValueError('no key')")
    write(tmp_path / "needy.py", "def agent(key):", "    return key")
    write(tmp_path / "runs.py", "import asyncio", "asyncio.run(Agent('x', planner=FinishPlanner()).run('go'))")
    write(tmp_path / "blocks.py", "Agent('x', planner=FinishPlanner()).run_sync('go')")
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


SPY = "open('executed', 'a').write(__name__)"


@pytest.mark.parametrize("word", ["README.md", "pack.sub", "pack.sub.deep", "html", "json.tool", "os.path", "x.y:z"])
def test_asking_whether_a_word_names_an_agent_executes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    """Neither a module of the folder nor the packages above it is imported to find out."""
    for name in ("README.py", "html.py", "pack/__init__.py", "pack/sub/__init__.py", "pack/sub/deep.py", "x.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SPY, "utf-8")
    is_target(word)
    assert not (tmp_path / "executed").exists()


def test_a_module_is_found_without_being_imported(tmp_path: Path) -> None:
    """One of the folder by its file, one that is installed by its path; the name of a file that is there is none."""
    write(tmp_path / "pack" / "__init__.py", SPY)
    write(tmp_path / "pack" / "inner.py")
    write(tmp_path / "pack" / "txt.py")
    (tmp_path / "pack.txt").write_text("a file, and no module", "utf-8")
    words = (
        "pack.inner",
        "pack.txt",
        "pack.txt:agent",
        "pack",
        "pack:agent",
        "pack.outer",
        "logging.handlers",
        "logging",
    )
    assert {word: is_target(word) for word in words} == {
        "pack.inner": True,
        "pack.txt": False,
        "pack.txt:agent": True,
        "pack": False,
        "pack:agent": True,
        "pack.outer": False,
        "logging.handlers": True,
        "logging": False,
    }
    assert not (tmp_path / "executed").exists()


def test_a_neighbour_never_takes_the_place_of_what_is_installed(tmp_path: Path) -> None:
    """The folder of an agent is looked in last, and only while the agent is in use."""
    folder = tmp_path / "elsewhere"
    write(folder / "graphlib.py", SPY)
    write(folder / "neighbour_of_agent.py")
    before = list(sys.path)
    with importable(folder):
        import graphlib

        import neighbour_of_agent  # type: ignore[import-not-found]

        assert neighbour_of_agent.Agent is Agent
    assert graphlib.__file__ is not None
    assert not graphlib.__file__.startswith(str(tmp_path))
    assert sys.path == before


def test_a_module_of_the_folder_that_an_installed_one_hides_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent that lies here was meant; the text says how to name it."""
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one != str(tmp_path)])
    write(tmp_path / "colorsys.py", "agent = Agent(name='mine', planner=FinishPlanner())")
    with pytest.raises(TargetError, match=r"give the file: \./colorsys\.py"):
        load_agent("colorsys")
    assert load_agent("./colorsys.py").name == "mine"


def test_a_plain_word_with_a_file_of_its_name_is_asked_about(tmp_path: Path) -> None:
    """It may begin a question, so nothing of the file is executed; the text says how to write either."""
    (tmp_path / "fix.py").write_text(SPY, "utf-8")
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text(SPY, "utf-8")
    for word, file in (("fix", "fix.py"), ("pack", "pack/__init__.py")):
        assert not is_target(word)
        with pytest.raises(TargetError, match=f"write {file}; to ask a question, put quotes"):
            refuse_mistyped(word)
    assert not (tmp_path / "executed").exists()


def test_what_looks_like_an_agent_is_no_question(tmp_path: Path) -> None:
    """A path or a module that is not there is refused, with the nearest that is; words and sentences pass."""
    write(tmp_path / "examples" / "orders.py")
    (tmp_path / "README.md").write_text("hello", "utf-8")
    refused = {
        "exmaples.orders": "did you mean examples.orders?",
        "examples/ordrs": "did you mean examples/orders.py?",
        "README.md": "--attach README.md",
        "./agent": "there is no such agent",
        "agent.py:": "behind the colon comes the name of an agent",
        "agent.py:a-b": "behind the colon comes the name of an agent",
        "zzz.qqq": "put quotes around the question",
    }
    for word, hint in refused.items():
        with pytest.raises(TargetError) as caught:
            refuse_mistyped(word)
        assert hint in str(caught.value), word
        assert "?." not in str(caught.value), word
    for word in ("What", "hello", "and/or", "3.14", "v1.2", "e.g.", "https://example.com/a.html", "What is html.py?"):
        refuse_mistyped(word)
        assert not is_target(word), word
