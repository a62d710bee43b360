"""`harborage`: commands listed and loaded late, wrong use in one line."""

from __future__ import annotations

import inspect
import json
import re
import resource
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from harborage import __version__
from harborage.cli.help import EXAMPLES
from harborage.cli.main import COMMANDS, HIDDEN, STDIN, app, main
from harborage.cli.status import EXIT_CODES
from tests.kit.tables import each_row

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {"asyncio", "cyclopts", "msgspec", "rich", "harborage.app", "harborage.runtime", "harborage.cli.run"}
HELP_CPU_S = 0.15


def loaded_by(words: list[str]) -> set[str]:
    """The modules that the command line has loaded when it is done with `words`."""
    code = (
        "import json, sys; from harborage.cli.main import main; main(sys.argv[1:]);"
        "sys.stderr.write(json.dumps([*sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code, *words], capture_output=True, text=True, check=True)
    return set(json.loads(done.stderr))


@each_row("words", [[], ["--help"], ["-h"], ["--version"]])
def test_help_loads_nothing_heavy(words: list[str]) -> None:
    """Help and version are answered without the runtime, rich, cyclopts or any command's module."""
    loaded = loaded_by(words)
    assert "harborage.cli.main" in loaded
    assert not loaded & HEAVY


def test_help_is_quick() -> None:
    """`harborage --help` takes at most 150 ms of CPU time, the start of Python included."""
    code = "import sys; from harborage.cli.main import main; sys.exit(main(['--help']))"
    command = [sys.executable, "-P", "-c", code]
    taken = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(taken) <= HELP_CPU_S


def test_reading_the_help_of_a_command_loads_no_runtime() -> None:
    """`harborage run --help` and its like load what parses the options and nothing that runs agents."""
    code = (
        "import sys; from harborage.cli.main import main\n"
        "for name in sys.argv[1:]:\n"
        "    main([name, '--help'])\n"
        "    heavy = {'harborage.app', 'harborage.runtime', 'harborage.events'} & {*sys.modules}\n"
        "    if heavy: sys.exit(f'{name} loads {heavy}')"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code, *COMMANDS], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a command, and with --help, every command is named with what it does."""
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert main(["--help"]) == 0
    assert capsys.readouterr().out == shown
    for name, (_, _, text) in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(text)}$", shown, re.MULTILINE)


def test_help_describes_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    """`harborage help run` is `harborage run --help`."""
    assert main(["help", "run"]) == 0
    shown = capsys.readouterr().out
    assert main(["run", "--help"]) == 0
    assert capsys.readouterr().out == shown


def test_help_keeps_its_lines_at_eighty_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a command does is shown as it was written, without a word on a line of its own."""
    monkeypatch.setenv("COLUMNS", "80")
    for name, (target, _, _) in COMMANDS.items():
        module, _, function = target.partition(":")
        written = inspect.getdoc(getattr(import_module(module), function))
        assert main([name, "--help"]) == 0
        shown = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
        assert written is not None
        assert [line for line in written.splitlines() if line not in shown] == [], name


def test_help_is_wrapped_by_words_on_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At 60 columns no line of help is longer, and no word of it is cut in two or left out."""
    wide: dict[str, list[str]] = {}
    for columns in (200, 60):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert main([]) == 0
        shown = capsys.readouterr().out
        assert main(["approve", "--help"]) == 0
        shown += capsys.readouterr().out
        assert max(map(len, shown.splitlines())) <= columns
        wide[str(columns)] = shown.split()
    assert wide["60"] == wide["200"]


@each_row("columns", ["60", "80", "120", "200"])
def test_help_has_no_boxes_and_its_options_stand_in_one_column(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At every width, and what a command does comes before its options, the examples after them."""
    monkeypatch.setenv("COLUMNS", columns)
    for name in COMMANDS:
        assert main([name, "--help"]) == 0
        shown = capsys.readouterr().out
        assert not set(shown) & set("╭╮╰╯│─"), name
        example = shown.rstrip().splitlines()[-1]
        assert name == "version" or "harborage " in shown.partition("\n")[2], name
        assert name not in EXAMPLES or "".join(example.split()) in "".join(" ".join(EXAMPLES[name]).split()), name


@each_row("name, example", [(name, one) for name, those in EXAMPLES.items() for one in those])
def test_an_example_of_the_help_is_right_use(name: str, example: str) -> None:
    """The parser takes it as it stands."""
    command = re.split(r" (?:>|\|\||&&) ", example.partition("harborage ")[2])[0]
    words = [STDIN if word == "-" else word for word in shlex.split(command)]
    function, _, _ = app().parse_args(words, exit_on_error=False, print_error=False)
    assert function.__name__ == name.replace("-", "_")


@each_row("name", COMMANDS)
def test_a_command_is_a_function_of_its_name(name: str) -> None:
    """Each command of the table names a function that is called like the command."""
    module, _, function = COMMANDS[name][0].partition(":")
    assert function == name.replace("-", "_")
    assert callable(getattr(import_module(module), function))


def test_the_table_is_what_is_parsed() -> None:
    """Every command of the two tables, and no other, is known to the parser; help lists those of the first alone."""
    known = {name for name in app() if not name.startswith("-")}
    assert known == COMMANDS.keys() | HIDDEN.keys()


@pytest.mark.parametrize("words", [["version"], ["--version"]])
def test_the_version_is_printed(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """`version` and --version print the same line."""
    assert main(words) == 0
    assert capsys.readouterr().out == f"harborage {__version__}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rnu"], 'Unknown command "rnu". Did you mean "run"?'),
        (["run"], "no goal; example: harborage run agent.py"),
        (["run", " "], "no goal; example: harborage run agent.py"),
        (["run", "agent.py"], "no goal; example: harborage run agent.py"),
        (["run", "agent.py", " "], "no goal; example: harborage run agent.py"),
        (["run", "agent.py", "x", "--wrong"], "Unknown option: --wrong."),
        (["run", "agent.py", "x", "--max-steps", "0"], 'Invalid value "0" for --max-steps'),
        (["run", "agent.py", "x", "--max-steps", "many"], 'unable to convert "many" into int'),
        (["run", "agent.py", "x", "--deadline", "-1"], "--deadline"),
        (["run", "agent.py", "x", "--user"], "--user"),
        (["doctor", "more", "words"], "Unexpected argument: more words. See 'harborage doctor --help'."),
        (["help", "nope"], 'Unknown command "help"'),
    ],
)
def test_wrong_use_is_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong use is exit code 2 and one line on stderr that names the thing and where to look."""
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("harborage: ")
    assert err.count("\n") == 1
    assert message in err


def test_every_exit_code_is_documented(capsys: pytest.CaptureFixture[str]) -> None:
    """The help of `run` and the reference name every exit code with its meaning, and no other code."""
    assert main(["run", "--help"]) == 0
    shown = capsys.readouterr().out
    assert {int(code): text.strip() for code, text in re.findall(r"^  (\d+) +(.*)$", shown, re.MULTILINE)} == EXIT_CODES
    page = (ROOT / "docs/reference/cli.md").read_text("utf-8")
    assert {int(code): text for code, text in re.findall(r"^\| (\d+) \| (.*) \|$", page, re.MULTILINE)} == EXIT_CODES


def test_every_option_is_documented(capsys: pytest.CaptureFixture[str]) -> None:
    """The reference names the options that `run` takes, and no other."""
    assert main(["run", "--help"]) == 0
    taken = set(re.findall(r"^  (--[a-z-]+)", capsys.readouterr().out, re.MULTILINE))
    page = (ROOT / "docs/reference/cli.md").read_text("utf-8")
    assert set(re.findall(r"^\| `(--[a-z-]+)", page, re.MULTILINE)) == taken


def test_every_command_is_documented() -> None:
    """The reference names each command that there is."""
    page = (ROOT / "docs/reference/cli.md").read_text("utf-8")
    assert [name for name in COMMANDS if not re.search(rf"`(harborage )?{name}\b", page)] == []


def test_an_empty_id_is_wrong_use(tmp_path: Path) -> None:
    """One line says so, for an id of spaces, too, and the exit code is 2."""
    database = tmp_path / "runs.db"
    database.touch()
    harborage = str(Path(sys.executable).with_name("harborage"))
    for words in (["approve", ""], ["freeze", " "]):
        done = subprocess.run(
            [harborage, *words, "--storage", str(database)],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 2, (words, done.stderr)
        assert done.stdout == ""
        assert done.stderr.startswith("harborage: an empty id names no run"), words
        assert done.stderr.count("\n") == 1, words
