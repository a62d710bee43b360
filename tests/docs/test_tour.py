"""The tour and the how-tos name files that are there, with what they are said to hold."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.kit.tables import each_row

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["docs/tour.md", *sorted(str(page.relative_to(ROOT)) for page in ROOT.glob("docs/howto/*.md"))]
PLACE = re.compile(r"`(?P<path>\w+/[\w/]+\.py)`(?:\s+`(?P<name>[A-Za-z_]\w*(?:\.\w+)*)`)?")


def places(page: str) -> Iterator[tuple[str, str]]:
    """The (path, name) pairs of a page, the name empty where none follows the path."""
    for found in PLACE.finditer((ROOT / page).read_text("utf-8")):
        yield found["path"], found["name"] or ""


def file_of(path: str) -> Path | None:
    """The file that a page means: a path from the top of the repository, or one below the package."""
    return next((file for file in (ROOT / path, ROOT / "src" / "harborage" / path) if file.is_file()), None)


def defines(file: Path, name: str) -> bool:
    """Whether a file defines each part of a dotted name, as a function, a class or a value."""
    text = file.read_text("utf-8")
    return all(
        re.search(rf"^\s*(?:(?:async )?def|class) {part}\b|^{part}\b.*=", text, re.MULTILINE)
        for part in name.split(".")
    )


@each_row("page", PAGES)
def test_what_a_page_points_at_is_there(page: str) -> None:
    """Each file that is named exists, and defines the name behind it."""
    wrong = []
    for path, name in places(page):
        file = file_of(path)
        if file is None or (name and not defines(file, name)):
            wrong.append(f"{path} {name}".strip())
    assert not wrong


def test_the_tour_points_at_files() -> None:
    """The pattern finds the places of the tour, so that the test above has something to judge."""
    found = list(places("docs/tour.md"))
    assert len(found) > 30
    assert ("runtime/loop/loop.py", "run_loop") in found


def test_a_wrong_place_is_found() -> None:
    """A file that is gone and a name that moved are both noticed."""
    assert file_of("runtime/nowhere.py") is None
    loop = file_of("runtime/loop/loop.py")
    assert loop is not None
    assert defines(loop, "run_loop")
    assert not defines(loop, "walk_loop")
