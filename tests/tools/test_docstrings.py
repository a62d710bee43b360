"""Reading a function's docstring."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harborage.tools.docstrings import Docstring, parse_docstring
from tests.kit.tables import each_row

GOOGLE = """Find flights.

    Looks at every airline.

    Args:
        origin (str): Where from,
            as an airport code.
        *dates: When: the day or days.
        to_city: Where to.

    Returns:
        A list.

    Raises:
        ValueError: never: really.
    """
NUMPY = """Find flights.

    Looks at every airline.

    Parameters
    ----------
    origin : str
        Where from,
        as an airport code.
    dates, to_city : str, optional
        Shared words.

    Returns
    -------
    list
        The flights.
    """
SPHINX = """Find flights.

    Looks at every airline.

    :param str origin: Where from,
        as an airport code.
    :param to_city: Where to.
    :type to_city: str
    :returns: A list.
    :raises ValueError: never.
    """


@each_row(
    "text, parameters",
    [
        (
            GOOGLE,
            {"origin": "Where from, as an airport code.", "dates": "When: the day or days.", "to_city": "Where to."},
        ),
        (
            NUMPY,
            {"origin": "Where from, as an airport code.", "dates": "Shared words.", "to_city": "Shared words."},
        ),
        (SPHINX, {"origin": "Where from, as an airport code.", "to_city": "Where to."}),
    ],
)
def test_the_three_styles_are_read(text: str, parameters: dict[str, str]) -> None:
    """The description ends where the sections begin; each parameter's meaning is one line."""
    assert parse_docstring(text) == Docstring("Find flights.\n\nLooks at every airline.", parameters)


@each_row(
    "text, description",
    [
        (None, ""),
        ("", ""),
        ("Just words.", "Just words."),
        ("Note: a colon is no heading.\n\nMore words.", "Note: a colon is no heading.\n\nMore words."),
        ("Words.\n\nArgs:\n", "Words."),
        ("Words.\n\nReturns:\n    Nothing.", "Words."),
    ],
)
def test_what_has_no_sections_is_all_description(text: str | None, description: str) -> None:
    """A docstring without parameter sections describes the function and nothing else."""
    assert parse_docstring(text) == Docstring(description, {})


def test_free_text_after_google_arguments_belongs_to_no_parameter() -> None:
    """The last parameter's meaning ends where the indent does."""
    assert parse_docstring("Words.\n\nArgs:\n    x: The x.\n\nA closing remark.").parameters == {"x": "The x."}


def test_free_text_after_a_sphinx_field_belongs_to_no_parameter() -> None:
    """The meaning of a Sphinx field ends where the indent does."""
    assert parse_docstring(":param x: The x.\n\nA closing remark.").parameters == {"x": "The x."}


def test_a_word_under_google_arguments_that_is_no_entry_continues_nothing() -> None:
    """A section that opens with free text does not lose the entries after it."""
    assert parse_docstring("Words.\n\nArgs:\n    these matter\n    x: The x.").parameters == {"x": "The x."}


@given(st.text(alphabet="ab:-\n\t *Args()", max_size=60))
def test_no_docstring_is_refused(text: str) -> None:
    """Any text at all is read without an error, and every meaning is one line."""
    parsed = parse_docstring(text)
    assert all("\n" not in meaning for meaning in parsed.parameters.values())
