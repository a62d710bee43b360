"""Where artifacts lie below the store's folder."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harborage.artifacts import ArtifactScope, UnsafePathError
from harborage.artifacts.folder import META_SUFFIX, TEMP_FOLDER, escape_name, escape_scope, parse_namespace
from tests.kit.tables import each_row

names = st.one_of(
    st.text(max_size=12),
    st.text(alphabet="._-/%~\\ aA\0é5F", max_size=12),
    st.text(alphabet="ab", min_size=170, max_size=400),
).filter(lambda name: not {".", ".."} & set(name.replace("\\", "/").split("/")))


@given(names)
@example("x" * 5000)
@example("\ud800")
def test_a_component_is_safe_for_any_file_system(name: str) -> None:
    """Only letters, digits and a few marks, short enough with its suffix, no hidden file and nothing that climbs."""
    component = escape_name(name)
    assert component.isascii()
    assert not set(component) & set('/\\\0:*?"<>| ')
    assert len(component + META_SUFFIX) <= 255
    assert not component.startswith(".")
    assert component not in ("_", TEMP_FOLDER)
    assert (component == "") == (name == "")


@given(names, names)
@example("_", "%5F")
@example("a/b", "a%2Fb")
@example("x" * 181, "x" * 182)
def test_different_names_give_different_components(one: str, other: str) -> None:
    """Nothing is folded, cut or escaped onto something else."""
    assert (escape_name(one) == escape_name(other)) == (one == other)


def test_a_name_cannot_imitate_a_shortened_one() -> None:
    """A name that spells the shortened form of another gets a component of its own."""
    long = "x" * 400
    assert escape_name(escape_name(long)) != escape_name(long)


@each_row("name", ["..", ".", "../a", "a/..", "a/../b", "a\\..\\b", "./a", "/..", "..\\"])
def test_a_name_that_climbs_is_refused(name: str) -> None:
    """The error shows the name and says which ones will do."""
    with pytest.raises(UnsafePathError, match="would lead out"):
        escape_name(name)


@each_row("name", ["...", "a..b", "..a", "a.", "~", "/etc/passwd", "C:\\x"])
def test_a_name_that_only_looks_odd_is_taken(name: str) -> None:
    """Dots and separators are fine as long as they do not spell a way up."""
    assert "/" not in escape_name(name)


def test_ordinary_names_stay_readable() -> None:
    """Ids, addresses and words are their own file names."""
    for name in ("01JABCDEF", "ada@example.org", "team-a_b.c", "a+b=c,d"):
        assert escape_name(name) == name


def test_no_task_has_a_folder_of_its_own() -> None:
    """The session's own level is `_`, which no task can be called."""
    assert escape_scope(ArtifactScope("t", "u", "s")) == ("t", "u", "s", "_")
    assert escape_scope(ArtifactScope("t", "u", "s", "_")) == ("t", "u", "s", "%5F")


def test_an_id_names_its_namespace() -> None:
    """Everything up to the last underscore; an id without one has none."""
    assert parse_namespace("a_b_0123") == "a_b"
    assert parse_namespace("plain") == ""
