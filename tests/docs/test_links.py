"""The pages lead somewhere: each of their links exists, and each page is found from the first one."""

from __future__ import annotations

import re
from pathlib import Path

from tests.kit.tables import each_row

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = ["README.md", "CONTRIBUTING.md", *sorted(str(page.relative_to(ROOT)) for page in DOCS.rglob("*.md"))]
LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?P<to>[^)\s]+)\)|!\[[^\]]*\]\((?P<picture>[^)\s]+)\)")
FENCE = re.compile(r"^ *(`{3,}|~{3,}).*?^ *\1", re.MULTILINE | re.DOTALL)
TABLE_OF_CONTENTS = re.compile(r"^```\{toctree\}\n(?P<body>.*?)^```", re.MULTILINE | re.DOTALL)


def broken_links(page: Path) -> list[str]:
    """The links of a page, within this repository, whose file or heading is not there."""
    return [to for to in links_of(page.read_text("utf-8")) if not leads_somewhere(page, to)]


def links_of(text: str) -> list[str]:
    """The links of a text outside its blocks of code, without those to other sites."""
    found = [match["to"] or match["picture"] for match in LINK.finditer(FENCE.sub("", text))]
    return [to for to in found if not re.match(r"[a-z]+:", to)]


def leads_somewhere(page: Path, to: str) -> bool:
    """Whether the file of a link is there, with the heading behind its `#`."""
    path, _, anchor = to.partition("#")
    file = (page.parent / path).resolve() if path else page
    if not file.is_relative_to(ROOT) or not file.exists():
        return False
    return not anchor or anchor in anchors_of(file.read_text("utf-8"))


def anchors_of(text: str) -> set[str]:
    """The anchors of a page's headings: small letters, words joined by dashes."""
    heads = re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def found_from(page: Path) -> set[Path]:
    """The pages in the tables of contents of a page, and of those in turn."""
    found: set[Path] = set()
    for contents in TABLE_OF_CONTENTS.finditer(page.read_text("utf-8")):
        names = [line for line in contents["body"].splitlines() if line.strip() and not line.startswith(":")]
        for name in names:
            below = (page.parent / f"{name}.md").resolve()
            assert below.is_file(), f"{page.name}: {name}"
            found |= {below, *found_from(below)}
    return found


@each_row("page", PAGES)
def test_the_links_of_a_page_lead_somewhere(page: str) -> None:
    """Each link to a file of this repository, and to a heading in it, finds it."""
    assert not broken_links(ROOT / page)


def test_every_page_is_in_a_table_of_contents() -> None:
    """A reader of the site gets from its first page to every other one, and to each once."""
    assert {DOCS / "index.md", *found_from(DOCS / "index.md")} == set(DOCS.rglob("*.md"))


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    """A file that is gone, a heading that is gone and a place outside are all noticed; code and other sites are not."""
    page = DOCS / "index.md"
    assert [leads_somewhere(page, to) for to in ("gone.md", "tour.md#gone", "../../outside.md")] == [False] * 3
    assert leads_somewhere(page, "tour.md#the-tour")
    text = "[a](gone.md) ![b](gone.png) [c](https://example.com)\n```\n[d](code.md)\n```\n"
    assert links_of(text) == ["gone.md", "gone.png"]
