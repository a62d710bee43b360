"""The repository holds nothing but the software, and its pins are complete and name no registry."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.kit.tables import each_row

# Labels of a plan, pointers to documents outside the repository, paths of one machine. The odd brackets keep each
# pattern from matching itself.
FOREIGN = re.compile(
    r"\bPhase \d"
    r"|\bD-\d{3}\b"
    r"|RFC[ ]§"
    r"|\b[Tt]he spec(?:ification)? [s]ays\b"
    r"|(?<![\w.])/(?:work|farm|root|home|Users)[/]\w"
    r"|\.librar[y]\b"
    r"|CLAUDE[.]md|AGENTS[.]md"
)
# `harborage init` writes these two files into a new project, so its own code and test name them.
OF_NEW_PROJECTS = re.compile(r"CLAUDE[.]md|AGENTS[.]md")
WRITE_THEM = frozenset(
    {"src/harborage/app/new_project.py", "src/harborage/app/project_templates.py", "tests/cli/test_init.py"}
)
ADDRESS = re.compile(r"\w+://|--(?:extra-)?index-url|--find-links|--trusted-host")
PIN = re.compile(r"^([A-Za-z0-9._-]+)==", re.MULTILINE)


def tracked(root: Path) -> list[Path]:
    """The files of the repository: committed, or about to be."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=root, capture_output=True, check=True).stdout.decode()
    return [root / name for name in sorted(filter(None, listed.split("\0")))]


def foreign_lines(text: str) -> list[str]:
    """The lines of a text that hold such a label, pointer or path."""
    return [
        f"{number}: {line.strip()[:120]}" for number, line in enumerate(text.splitlines(), 1) if FOREIGN.search(line)
    ]


def text_of(file: Path) -> str:
    """The text of a file; '' for pictures and other bytes, and for a file that is deleted and not yet committed."""
    try:
        return file.read_text("utf-8")
    except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
        return ""


def normal(name: str) -> str:
    """A distribution's name the way an index compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.skipif(not Path(__file__, "../../../.git").resolve().exists(), reason="not a git checkout")
def test_no_file_holds_a_foreign_label(root: Path) -> None:
    """No file holds the label of a plan, a pointer to a document outside the repository, or a path of one machine."""
    files = tracked(root)
    assert root / "pyproject.toml" in files
    found = [
        f"{name}:{line}"
        for file in files
        if (name := file.relative_to(root).as_posix())
        for line in foreign_lines(OF_NEW_PROJECTS.sub("", text_of(file)) if name in WRITE_THEM else text_of(file))
    ]
    assert not found, "\n".join(found)


@each_row(
    "text",
    [
        f"built in Phase {3}",
        f"see D-{123}",
        f"as RFC {chr(167)}4 asks",
        "the spec " + "says so",
        "/wor" + "k/main/src",
        "cd /ro" + "ot/x",
        "/hom" + "e/ada/src",
        ".librar" + "y/",
    ],
)
def test_a_foreign_label_is_found(text: str) -> None:
    """Each kind of label is found."""
    assert foreign_lines(text)


@each_row(
    "text",
    ["the phase of a run", f"RFC 9110 {chr(167)}15", f"D-{12}", "docs/home/page", "https://a.b/wor" + "k/1"],
)
def test_an_ordinary_word_is_allowed(text: str) -> None:
    """Words of the domain, standards by number and addresses are no labels."""
    assert not foreign_lines(text)


def test_the_pins_name_no_registry(root: Path) -> None:
    """The committed pins are versions and hashes, so that each user installs from an index of their choice."""
    for name in ("requirements.lock", "requirements-dev.lock", "requirements-site.lock"):
        lock = (root / name).read_text("utf-8")
        assert len(PIN.findall(lock)) > 20, name
        assert not ADDRESS.search(lock), name
        assert lock.count("==") <= lock.count("--hash=sha256:"), name


def test_the_core_pins_are_among_the_tested_pins(root: Path) -> None:
    """What `make run` installs is a small part of what the tests install, in the same versions."""
    core, tested = (
        set(re.findall(r"^([\w.-]+==[\w.+-]+)", (root / name).read_text("utf-8"), re.MULTILINE))
        for name in ("requirements.lock", "requirements-dev.lock")
    )
    assert core <= tested, f"run 'make lock': {sorted(core - tested)}"
    assert len(core) < len(tested) / 2


def test_the_pins_cover_the_project(root: Path) -> None:
    """Every dependency that the project declares for itself, its tests, its tools and its site is pinned."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    groups = dict(project["dependency-groups"])
    of_the_site = groups.pop("site")
    of_the_rest = [*project["project"]["dependencies"], *(one for group in groups.values() for one in group)]
    for lock, declared in (("requirements-dev.lock", of_the_rest), ("requirements-site.lock", of_the_site)):
        wanted = {normal(re.split(r"[^\w.-]", one, maxsplit=1)[0]) for one in declared if isinstance(one, str)}
        pinned = {normal(name) for name in PIN.findall((root / lock).read_text("utf-8"))}
        assert wanted
        assert wanted <= pinned, f"run 'make lock' to pin {sorted(wanted - pinned)}"
