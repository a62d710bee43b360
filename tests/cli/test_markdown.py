"""Markdown as a terminal shows it."""

from __future__ import annotations

import re

import pytest

from harborage.cli.markdown import is_markdown, render_markdown
from harborage.cli.terminal import columns
from tests.kit.tables import each_row

ANSWER = """\
# Orders

Ordered, both **before Friday** with `place_order`:

- Tea 12 boxes, which is as many as fit on the shelf when the lamps are on it, too
- Salt

```python
def f(x: int) -> str:
    return "a" * 3  # a comment that is rather long and goes on until it has to be folded somewhere
```

| Item | Boxes |
|:-----|------:|
| Tea  |    12 |
| Salt |     8 |

See [the docs](https://example.com).
Line one
Line two
"""
AT_60 = """\
Orders

Ordered, both before Friday with place_order:

 • Tea 12 boxes, which is as many as fit on the shelf when
   the lamps are on it, too
 • Salt

  def f(x: int) -> str:
      return "a" * 3  # a comment that is rather long and go
  ↪ es on until it has to be folded somewhere

Item  Boxes
Tea      12
Salt      8

See the docs (https://example.com).
Line one
Line two
"""


def test_an_answer_is_rendered_for_a_narrow_terminal() -> None:
    """Without boxes, without fills, and with the line breaks of the model."""
    assert render_markdown(ANSWER, 60, has_colour=False) == AT_60


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    """Prose is at most 100 columns wide."""
    shown = render_markdown(ANSWER, width, has_colour=False)
    assert max(columns(line) for line in shown.splitlines()) <= min(width, 100)
    assert render_markdown("word " * 100, 200, has_colour=False).splitlines()[0] == ("word " * 20).strip()


def test_colours_are_those_of_the_terminal() -> None:
    """Keywords blue, strings green, numbers magenta; no background, no bright colour."""
    shown = render_markdown(ANSWER, 80, has_colour=True)
    codes = {code for found in re.findall(r"\x1b\[([0-9;]*)m", shown) for code in found.split(";")}
    assert {"34", "32", "35", "1", "4"} <= codes
    assert not {code for code in codes if code.isdigit() and (40 <= int(code) < 49 or int(code) > 49)}


@each_row("text", ["plain text", "two\nlines", "2 * 3 is 6", "a_b", "https://example.com", "$5 - 3"])
def test_a_text_without_markup_is_left_as_it_is(text: str) -> None:
    """It is wrapped by words at most."""
    assert not is_markdown(text)
    assert render_markdown(text, 80, has_colour=False) == f"{text}\n"
