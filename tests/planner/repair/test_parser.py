"""Actions are found however the model wrapped them, and never where it wrote none."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harborage.planner.repair import NoActionsFoundError, ToolAction, dropped_extra_fields, parse
from tests.kit.tables import each_row


def tools(text: str) -> list[str]:
    """The tools of the actions in `text`."""
    return [action.tool for action in parse(text)]


@each_row(
    "text",
    [
        "",
        "   ",
        "\n\t",
        "no action here",
        "{",
        '{"tool": "a"',
        "[1, 2]",
        "12",
        "null",
        "-Infinity",
        '{"tool": "a", "args": {"x": NaN}}',
    ],
)
def test_no_action(text):
    """Blank text, prose, and JSON that is cut short, means something else or is none, hold no action."""
    with pytest.raises(NoActionsFoundError):
        parse(text)


@each_row("tool", ['""', "1", "null", '["a"]', "true"])
def test_a_tool_is_a_non_empty_text(tool):
    """An object whose tool is missing, empty or no text is no action."""
    with pytest.raises(NoActionsFoundError):
        parse(f'{{"tool": {tool}, "args": {{}}}}')
    with pytest.raises(NoActionsFoundError):
        parse('{"args": {"tool": "x"}}')


def test_one_object():
    """The whole text is one action; without arguments they are empty."""
    assert parse(' {"tool": "a", "args": {"x": 1}} ') == [ToolAction("a", b'{"x": 1}')]
    assert parse('{"tool": "a"}') == [ToolAction("a", b"{}")]
    assert parse('{"tool": "a", "args": null}') == [ToolAction("a", b"{}")]


def test_arguments_are_kept_byte_for_byte():
    """Spacing, the order of keys and the form of numbers stay as the model wrote them."""
    args = '{ "b" : 1.50,\n  "a": 1e3, "b2": 123456789012345678901234567890 }'
    assert parse(f'{{"tool": "a", "args": {args}}}')[0].args == args.encode()
    assert parse(f'Well: {{"tool": "a", "args": {args}}} there')[0].args == args.encode()


def test_an_array():
    """The entries of an array that are actions count, in order; objects without a tool are left out."""
    assert tools('[{"tool": "a"}, {"note": 1}, {"tool": ""}, {"tool": "b"}]') == ["a", "b"]


@each_row("spoiler", ["1", '"x"', "null", '{"tool": 1}', '{"tool": null}', "[]"])
def test_an_array_that_is_spoilt(spoiler):
    """An entry that is no object, or whose tool is no text, disqualifies the whole array."""
    with pytest.raises(NoActionsFoundError):
        parse(f'[{{"tool": "a"}}, {spoiler}]')


def test_fenced_blocks():
    """Every fenced block is read as a text of its own; their actions are joined in order."""
    text = 'First:\n```json\n{"tool": "a"}\n```\nthen\n```\n[{"tool": "b"}, {"tool": "c"}]\n```\n{"tool": "d"}'
    assert tools(text) == ["a", "b", "c"]


def test_an_unterminated_fence():
    """A fence that is not closed is no fence; what is in it is found in the prose."""
    assert tools('```json\n{"tool": "a"}\n```\n```json\n{"tool": "b"}') == ["a"]
    assert tools('```json\n{"tool": "b"}') == ["b"]


def test_prose():
    """Actions are found between other words, one or several."""
    assert tools('I will call {"tool": "a", "args": {}} now.') == ["a"]
    assert tools('first {"tool": "a"}, then {"tool": "b"}; maybe [{"tool": "c"}]') == ["a", "b", "c"]
    assert tools('3 - true "quoted" {oops} {"tool": "a"}') == ["a"]


def test_an_inner_object_of_a_valid_one_is_not_looked_for():
    """A whole object without a tool is passed over with all that is in it."""
    with pytest.raises(NoActionsFoundError):
        parse('{"wrapped": {"tool": "a"}}')
    with pytest.raises(NoActionsFoundError):
        parse('see: {"wrapped": {"tool": "a"}}')


def test_an_inner_object_of_a_broken_one_is_found():
    """Where the outer object is broken, the search goes on inside it."""
    assert tools('{"wrapped": {"tool": "a"}, oops') == ["a"]


def test_text_in_quotes_is_not_an_action():
    """JSON inside a JSON string is text."""
    with pytest.raises(NoActionsFoundError):
        parse(json.dumps('{"tool": "a"}'))


def test_dropped_fields():
    """Legacy fields are reported once for each action that has them, by the rung that found the actions."""
    assert dropped_extra_fields('{"tool": "a", "reasoning": "r", "thought": "t"}') == ["reasoning", "thought"]
    assert dropped_extra_fields('[{"tool": "a", "thought": 1}, {"tool": "b", "thought": 2}]') == ["thought", "thought"]
    assert dropped_extra_fields('x {"tool": "a", "args": {"thought": 1}}') == []
    assert dropped_extra_fields('{"reasoning": "no action"}') == []


def test_numbers_without_end():
    """A number that Python would refuse to convert is passed over like any other."""
    assert tools("9" * 20_000 + ' {"tool": "a"}') == ["a"]


def test_nesting_without_end_is_survived():
    """Brackets beyond all depth end the search instead of the program."""
    with pytest.raises(NoActionsFoundError):
        parse("[" * 100_000)


@settings(deadline=None)
@given(st.text())
def test_any_text_is_survived(text):
    """Whatever the text, there are actions with tools or there is the one error."""
    try:
        found = parse(text)
    except NoActionsFoundError:
        assert dropped_extra_fields(text) == []
        return
    assert found
    assert all(action.tool for action in found)


_names = st.text(min_size=1).filter(lambda name: not any("\ud800" <= one <= "\udfff" for one in name))
_prose = st.text(alphabet="abc ,.:;\n", max_size=20)


@settings(deadline=None)
@given(st.lists(st.tuples(_names, st.dictionaries(_names, st.integers() | st.text(alphabet="xyz`"))), min_size=1))
def test_an_array_of_actions_is_read_back(actions):
    """What is written as actions is read as these actions."""
    text = json.dumps([{"tool": tool, "args": args} for tool, args in actions])
    assert [(action.tool, json.loads(action.args)) for action in parse(text)] == actions


@settings(deadline=None)
@given(st.lists(st.tuples(_prose, _names), min_size=1), _prose)
def test_actions_in_prose_are_read_back(parts, ending):
    """Words around and between the objects do not matter."""
    text = "".join(words + json.dumps({"tool": tool}) for words, tool in parts) + ending
    assert tools(text) == [tool for _, tool in parts]
