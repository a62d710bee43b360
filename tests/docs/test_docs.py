"""The documentation runs: its Python blocks are executed, and the commands it shows exist.

Pages that ask a model talk to a server on loopback, which answers with the lines of `tests/data/docs_models.json`.
The `python` blocks of one file share one namespace and one event loop, from top to bottom, and may `await` at their
top level. A block that cannot run here is fenced as `python no-run` and opens with a comment `# no-run: why`.
In a `console` block each line that starts with `$ ` is a command.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
import traceback
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from tests.kit.docs_models import answers_for
from tests.kit.llm_server import LLMServer
from tests.kit.tables import each_row

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["README.md", "CONTRIBUTING.md", *sorted(str(page.relative_to(ROOT)) for page in ROOT.glob("docs/**/*.md"))]

FENCE = re.compile(r"^(?P<indent>\s*)(?P<fence>`{3,}|~{3,})\s*(?P<info>[^`]*)$")
REASON = re.compile(r"#\s*no-run:\s*\S+(\s+\S+)+")
ASSIGNMENT = re.compile(r"\w+=\S*")
# Found on the reader's machine, or part of the shell.
ELSEWHERE = frozenset(
    {"cd", "curl", "docker", "export", "git", "npm", "npx", "pip", "python", "pkill", "python3", "uv", "uvx"}
)


class Block(NamedTuple):
    """One fenced block: the words behind its fence, its text, and the line its text starts on."""

    info: tuple[str, ...]
    text: str
    line: int

    @property
    def language(self) -> str:
        """The first word behind the fence."""
        return self.info[0] if self.info else ""


def blocks_of(text: str) -> Iterator[Block]:
    """The fenced blocks of a Markdown text, in order."""
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        if opened := FENCE.match(line):
            body = []
            for _, inner in lines:
                closed = FENCE.match(inner)
                if closed and not closed["info"] and closed["fence"].startswith(opened["fence"]):
                    break
                body.append(inner)
            yield Block(tuple(opened["info"].split()), textwrap.dedent("\n".join(body)), number + 1)


def run_blocks(page: str, blocks: list[Block], module: ModuleType) -> None:
    """Execute the Python blocks of one page in one module; errors carry the page's own line numbers."""
    with asyncio.Runner() as runner:
        for block in blocks:
            code = compile("\n" * (block.line - 1) + block.text, page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            if "no-run" in block.info:
                continue
            if code.co_flags & inspect.CO_COROUTINE:
                runner.run(eval(code, vars(module)))
            else:
                exec(code, vars(module))


def commands_of(block: Block) -> Iterator[list[str]]:
    """The words of each command a console block shows, after variables that are set for it and after `&&` or `|`."""
    joined = re.sub(r"\\\n", " ", block.text)
    for line in joined.splitlines():
        if line.startswith("$ "):
            for part in re.split(r"&&|\|\|?|;", line[2:]):
                words = shlex.split(part, comments=True)
                while words and ASSIGNMENT.fullmatch(words[0]):
                    words.pop(0)
                if words:
                    yield words


def make_targets() -> set[str]:
    """The jobs of the Makefile."""
    return set(re.findall(r"^([a-z][\w-]*):(?!=)", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))


@cache
def harborage_knows(*path: str) -> bool:
    """Whether the command line of Harborage has the subcommand and answers its `--help`."""
    program = Path(sys.executable).with_name("harborage")
    return subprocess.run([program, *path, "--help"], capture_output=True, check=False).returncode == 0


def exists(words: list[str]) -> bool:
    """Whether a command that the documentation shows can be typed."""
    match words:
        case ["make", *rest]:
            return {word for word in rest if "=" not in word and not word.startswith("-")} <= make_targets()
        case ["harborage", command, *_] if not command.startswith("-"):
            return harborage_knows(command)
        case ["harborage", *_]:
            return harborage_knows()
        case [program, *_]:
            return program in ELSEWHERE or (ROOT / program).exists() or shutil.which(program) is not None
        case _:
            return False


@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_runs(
    page: str, provider: LLMServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader who types the page from top to bottom, in an empty folder, sees no error; no answer is left unasked."""
    blocks = [block for block in blocks_of((ROOT / page).read_text("utf-8")) if block.language == "python"]
    module = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)  # where classes of the page look up their annotations
    monkeypatch.chdir(tmp_path)
    run_blocks(page, blocks, module)
    assert len(provider.requests) == len(answers_for(page))


@each_row("page", PAGES)
def test_a_block_that_is_not_run_says_why(page: str) -> None:
    """Every block fenced as `python no-run` opens with the reason."""
    blocks = [block for block in blocks_of((ROOT / page).read_text("utf-8")) if "no-run" in block.info]
    assert not [f"{page}:{block.line}" for block in blocks if not REASON.match(block.text)]


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_exist(page: str) -> None:
    """Each make job, subcommand and program that a page tells the reader to type is there."""
    blocks = [block for block in blocks_of((ROOT / page).read_text("utf-8")) if block.language == "console"]
    shown = {tuple(words) for block in blocks for words in commands_of(block)}
    assert not [shlex.join(words) for words in sorted(shown) if not exists(list(words))]


@each_row("page", PAGES)
def test_a_shell_block_is_a_console_block(page: str) -> None:
    """No page hides a command from the test above in a `sh` or `bash` block."""
    blocks = blocks_of((ROOT / page).read_text("utf-8"))
    assert not [f"{page}:{block.line}" for block in blocks if block.language in {"bash", "sh", "shell", "zsh"}]


SAMPLE = """
```python
import asyncio
box = []
```

1. in a list:

   ````python
   await asyncio.sleep(0)
   box.append("```")
   ````

```python no-run
# no-run: needs a key
1 / 0
```

~~~python
assert box == ["```"], box
~~~

```console
$ X=1 make test ARGS="-k one" && cd src  # a comment
make nothing
$ make \\
    nowhere
```
"""


def test_blocks_share_a_namespace_and_may_await() -> None:
    """Later blocks see what earlier ones made, top-level await works, and a no-run block is left out."""
    module = ModuleType("__main__")
    run_blocks("sample", [block for block in blocks_of(SAMPLE) if block.language == "python"], module)
    assert vars(module)["box"] == ["```"]


def test_a_failing_block_names_its_line() -> None:
    """The traceback of a block points into the page."""
    with pytest.raises(ZeroDivisionError) as caught:
        run_blocks("page.md", list(blocks_of("# title\n\n```python\nx = 1\nx / 0\n```\n")), ModuleType("__main__"))
    frame = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert (frame.filename, frame.lineno) == ("page.md", 5)


def test_only_prompted_lines_are_commands() -> None:
    """Output is not a command; variables, comments and line ends inside one are understood."""
    (console,) = (block for block in blocks_of(SAMPLE) if block.language == "console")
    commands = list(commands_of(console))
    assert commands == [["make", "test", "ARGS=-k one"], ["cd", "src"], ["make", "nowhere"]]
    assert [exists(words) for words in commands] == [True, True, False]


def test_a_silent_exception_is_found() -> None:
    """A reason is a comment with at least two words."""
    assert REASON.match("# no-run: needs a key\nx")
    assert not REASON.match("# no-run:\nx")
    assert not REASON.match("x = 1")
