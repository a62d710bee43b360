"""What the model is shown of a step's outcome."""

from __future__ import annotations

from harborage.llm import ArtifactStub
from harborage.planner import CallTool, FailureRecord, ParallelBranchObservation, ParallelObservation, Step
from harborage.planner.react.observations import (
    PLACEHOLDER,
    render_branches,
    render_fetch_call,
    render_heavy_result,
    render_observation,
)
from harborage.planner.text import render_value
from tests.kit.tables import each_row

REF = 'artifact_fetch(ref="art-1")'


def wrapper(**fields):
    """A heavy result as the dispatcher leaves it."""
    return {"tool": "t", "size_bytes": 40_000, "truncated": True, "preview": "begin", "artifact_ref": "art-1", **fields}


HEAVY = {
    "stub": (
        ArtifactStub("art-1", "text/csv", 5, summary="two\nlines"),
        f"two lines [cut; the whole result (5 bytes, text/csv): {REF}]",
    ),
    "stub without a summary": (
        ArtifactStub("art-1", "text/csv", 5),
        f"(no excerpt) [cut; the whole result (5 bytes, text/csv): {REF}]",
    ),
    "stub without a type": (
        ArtifactStub("art-1", "", 5, summary="s"),
        f"s [cut; the whole result (5 bytes): {REF}]",
    ),
    "stub read back": (
        {"artifact_ref": "art-1", "mime": "text/csv", "size_bytes": 5, "summary": "s"},
        f"s [cut; the whole result (5 bytes, text/csv): {REF}]",
    ),
    "wrapper": (wrapper(), f"begin [cut; the whole result (40000 bytes): {REF}]"),
    "wrapper with a float": (wrapper(size_bytes=4e4), f"begin [cut; the whole result (40000 bytes): {REF}]"),
    "wrapper with a type": (wrapper(mime="a/b"), f"begin [cut; the whole result (40000 bytes, a/b): {REF}]"),
    "wrapper without a size": (wrapper(size_bytes=None), f"begin [cut; the whole result: {REF}]"),
    "wrapper of endless size": (wrapper(size_bytes=float("inf")), f"begin [cut; the whole result: {REF}]"),
    "wrapper without a preview": (wrapper(preview=""), f"(no excerpt) [cut; the whole result (40000 bytes): {REF}]"),
    "wrapper without a reference": (wrapper(artifact_ref=""), "begin"),
    "only a reference": ({"artifact_ref": "art-1"}, f"(no excerpt) [cut; the whole result: {REF}]"),
    "only a preview": ({"preview": "a\nb"}, "a b"),
    "pieces left out, not JSON": (
        wrapper(preview='{"a":"[omitted: 5 bytes]'),
        f'{{"a":"[omitted: 5 bytes] [cut; the whole result (40000 bytes): {REF}]',
    ),
}


@each_row("name", HEAVY)
def test_heavy_results(name):
    """A heavy result shows its excerpt and the call that reads the rest; the wrapper itself is not shown."""
    value, text = HEAVY[name]
    assert render_heavy_result(value) == text


def test_fields_that_were_left_out():
    """Where fields were cut, the excerpt stays as it is and the footer, behind a blank line, speaks of fields."""
    preview = '{"body":"[omitted: 9000 bytes]","n":1}'
    shown = render_heavy_result(wrapper(preview=preview))
    excerpt, footer = shown.split("\n\n")
    assert excerpt == preview
    assert REF in footer
    assert "fields" in footer
    assert "same result" in footer


@each_row(
    "value",
    [
        None,
        "text",
        {},
        {"preview": "", "artifact_ref": ""},
        {"preview": 1, "artifact_ref": ["x"]},
        {"preview": "a teaser", "title": "a page"},
        {"artifact_ref": "art-1", "rows": [1, 2]},
        {"truncated": True, "rows": []},
    ],
)
def test_what_is_not_heavy(value):
    """A tool's own result is not mistaken for a wrapper, though it may have a preview of its own."""
    assert render_heavy_result(value) is None


def test_references_are_quoted():
    """A reference is written as a model has to write it."""
    assert render_fetch_call('a"b') == 'artifact_fetch(ref="a\\"b")'


def test_the_order_of_outcomes():
    """A failure is shown before an error, an error before what was observed, and heavy forms before plain ones."""
    failure = FailureRecord(code="boom", message="it\nbroke", attempts=2)
    heavy, plain = wrapper(), {"n": 1}
    assert render_observation(Step(failure=failure, error="e", observation=plain)) == "error: boom: it broke"
    assert render_observation(Step(failure=FailureRecord(code="boom"))) == "error: boom"
    assert render_observation(Step(error="a\nb", llm_observation=plain)) == "error: a b"
    assert render_observation(Step(llm_observation=heavy, observation=plain)).startswith("begin ")
    assert render_observation(Step(llm_observation=plain, observation=heavy)).startswith("begin ")
    assert render_observation(Step(llm_observation={"shown": 1}, observation={"hidden": 1})) == '{"shown":1}'
    assert render_observation(Step(observation=plain)) == '{"n":1}'


@each_row("step", [Step(), Step(observation=""), Step(observation=" \n"), Step(llm_observation="")])
def test_nothing_becomes_the_placeholder(step):
    """An outcome that is missing or empty has a text all the same."""
    assert render_observation(step) == PLACEHOLDER
    assert PLACEHOLDER.strip()


@each_row("value", [0, False, {}, []])
def test_falsy_is_not_nothing(value):
    """A zero, a no, and an empty list are results."""
    assert render_observation(Step(observation=value)) == render_value(value)


def outcome(index: int, **fields) -> ParallelBranchObservation:
    """What one branch left."""
    return ParallelBranchObservation(index=index, **fields)


def test_branches_are_matched_by_index():
    """Each branch has its own outcome, in whatever order they are; one that is missing has the placeholder."""
    seen = ParallelObservation([outcome(2, value=wrapper()), outcome(0, error="no\nway"), outcome(1, value={"n": 1})])
    bodies = render_branches(Step(observation=ParallelObservation(), llm_observation=seen), 4)
    assert bodies[:2] == ["error: no way", '{"n":1}']
    assert bodies[2].startswith("begin ")
    assert bodies[3] == PLACEHOLDER


def test_branches_that_were_read_back():
    """After a restart the aggregate is plain JSON, and means the same."""
    seen = {"branches": [{"index": 1, "value": "b"}, {"index": 0, "tool": "t", "value": "a"}]}
    assert render_branches(Step(observation=seen), 2) == ["a", "b"]


@each_row(
    "step, body",
    [
        (Step(failure=FailureRecord(code="c", message="m"), error="e"), "error: c: m"),
        (Step(error="e", observation={"n": 1}), "error: e"),
        (Step(llm_observation={"error": "parallel dispatch: cap"}), '{"error":"parallel dispatch: cap"}'),
        (Step(), PLACEHOLDER),
    ],
)
def test_a_parallel_call_that_was_aborted(step, body):
    """Without outcomes of its branches, each of them gets the outcome of the whole."""
    assert render_branches(step, 3) == [body] * 3


def test_the_whole_aggregate_is_used_where_the_reduced_one_is_none():
    """An aggregate is found in either slot, the one for the model first."""
    whole = ParallelObservation([outcome(0, value="whole")])
    assert render_branches(Step(action=CallTool("x"), observation=whole), 1) == ["whole"]
    seen = ParallelObservation([outcome(0, value="seen")])
    assert render_branches(Step(observation=whole, llm_observation=seen), 1) == ["seen"]


def test_an_error_is_short():
    """An error that quotes a whole page is cut."""
    body = render_observation(Step(error="x" * 50_000))
    assert body.startswith("error: xxx")
    assert len(body) < 9_000
    assert body.endswith("…")
    assert render_branches(Step(observation=ParallelObservation([outcome(0, error="y" * 50_000)])), 1)[0].endswith("…")
