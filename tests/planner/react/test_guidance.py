"""Repair counters, and what the prompt says about them."""

from __future__ import annotations

import itertools

from harborage import codec
from harborage.planner import (
    AwaitTask,
    CallParallel,
    CallTool,
    Finish,
    FinishReason,
    RepairCounters,
    RequestPause,
    Step,
    Trajectory,
    react,
)
from harborage.planner.react import RepairTier, repair_tier
from harborage.planner.react.guidance import (
    count_declarative_outcome,
    is_declarative_action,
    select_guidance,
    update_counters,
)
from harborage.planner.repair import RepairSignals
from tests.kit.tables import each_row

TOPICS = ("FINISH", "ARGS", "MULTI_ACTION")
TEXTS = {
    (tier, topic): getattr(react, f"{tier.upper()}_{topic}_GUIDANCE") for tier in RepairTier if tier for topic in TOPICS
}


@each_row(
    "count, tier",
    [(-1, ""), (0, ""), (1, "reminder"), (2, "warning"), (3, "critical"), (4, "critical"), (99, "critical")],
)
def test_tiers(count, tier):
    """One slip is a reminder, two are a warning, and from three on it is critical."""
    assert repair_tier(count) is RepairTier(tier)


@each_row("tier, topic", TEXTS)
def test_each_text_begins_with_its_tier(tier, topic):
    """No text was put in another's place, and none speaks of an envelope that is gone or of reserved names."""
    text = TEXTS[tier, topic]
    assert text.startswith(f"{tier}: ")
    assert not any(word in text for word in ("_finish", "_spawn", "_await", "{", "`", "fence", "args_schema", "\n"))


def test_no_text_is_used_twice():
    """Nine texts, all different, and a firmer one is not a longer lecture."""
    assert len(set(TEXTS.values())) == 9
    assert all(len(text) < 140 for text in TEXTS.values())


def test_lines_come_in_a_fixed_order():
    """Each counter that is up has one line: how to end, arguments, several actions."""
    lines = select_guidance(RepairCounters(finish_repair=3, args_repair=1, multi_action=2))
    assert [(line.counter, line.tier, line.count) for line in lines] == [
        ("finish", "critical", 3),
        ("args", "reminder", 1),
        ("multi_action", "warning", 2),
    ]
    assert [line.text for line in lines] == [
        TEXTS[RepairTier.CRITICAL, "FINISH"],
        TEXTS[RepairTier.REMINDER, "ARGS"],
        TEXTS[RepairTier.WARNING, "MULTI_ACTION"],
    ]


def test_every_combination_has_its_texts():
    """Whatever the counters, there is one line for each that is up, and reading them changes nothing."""
    for counts in itertools.product(range(5), repeat=3):
        counters = RepairCounters(*counts)
        lines = select_guidance(counters)
        assert len(lines) == sum(count > 0 for count in counts)
        assert all(line.text.startswith(f"{line.tier}: ") for line in lines)
        assert counters == RepairCounters(*counts)


def test_no_counters_no_guidance():
    """A run without counters gets none."""
    assert select_guidance(None) == []


ESCAPE = CallTool("declarative_action")


def counted(before: RepairCounters, decision, **repaired) -> tuple[int, int, int]:
    """The counters after a decision."""
    update_counters(before, decision, RepairSignals(**repaired))
    return before.finish_repair, before.args_repair, before.multi_action


def test_what_was_repaired_is_counted():
    """A repair adds one to its counter; the other one starts anew."""
    assert counted(RepairCounters(0, 1, 1), CallTool("a"), args_repaired=True) == (0, 2, 0)
    assert counted(RepairCounters(0, 1, 1), CallTool("a"), multi_action=True) == (0, 0, 2)


def test_a_clean_step_resets():
    """A step that needed no repair resets both of these counters and leaves the finish alone."""
    assert counted(RepairCounters(2, 5, 5), CallTool("a")) == (2, 0, 0)


@each_row(
    "decision, finish",
    [
        (Finish(FinishReason.GOAL), 0),
        (Finish(FinishReason.NO_PATH), 3),
        (Finish(FinishReason.CANCELLED), 2),
        (Finish(FinishReason.DEADLINE_EXCEEDED), 2),
        (Finish(FinishReason.CONSTRAINTS_CONFLICT), 2),
        (AwaitTask("t"), 2),
        (RequestPause("await_input"), 2),
        (CallParallel((CallTool("a"),)), 2),
    ],
)
def test_the_finish_counter(decision, finish):
    """A goal resets it, a run without a path adds to it, everything else leaves it."""
    assert counted(RepairCounters(2, 0, 0), decision)[0] == finish


def test_no_counters():
    """A run without counters is counted nowhere."""
    update_counters(None, CallTool("a"), RepairSignals(args_repaired=True))


class Converts:
    """A live object with a JSON form."""

    def to_json(self):
        """Its JSON form."""
        return {"repair_outcome": {"multi_action": True}}


OUTCOMES = {
    "a dict": ({"repair_outcome": {"args_repaired": True}}, (0, 1, 0)),
    "bytes": (b'{"repair_outcome": {"multi_action": true}}', (0, 0, 1)),
    "text": ('{"repair_outcome": {"finish_repair": true}}', (1, 0, 0)),
    "an object": (Converts(), (0, 0, 1)),
    "all": ({"repair_outcome": {"args_repaired": True, "multi_action": True, "finish_repair": True}}, (1, 1, 1)),
    "clean": ({"repair_outcome": {"args_repaired": False, "multi_action": None}}, (0, 0, 0)),
    "not a flag": ({"repair_outcome": {"args_repaired": 1, "multi_action": "true"}}, (0, 0, 0)),
    "none": ({"dispatched": True}, (0, 0, 0)),
    "not an object": ({"repair_outcome": [1]}, (0, 0, 0)),
    "no JSON": ("{oops", (0, 0, 0)),
    "nothing": (None, (0, 0, 0)),
    "a live object": (object(), (0, 0, 0)),
}


@each_row("name", OUTCOMES)
@each_row("slot", ["llm_observation", "observation"])
def test_a_declarative_outcome(make_run, name, slot):
    """Each flag of the last step's outcome counts once, in whatever form; what cannot be read counts nothing."""
    observed, counts = OUTCOMES[name]
    run = make_run(trajectory=Trajectory(steps=[Step(action=ESCAPE, **{slot: observed})]))
    assert count_declarative_outcome(run) is any(counts)
    counters = run.repair_counters
    assert (counters.finish_repair, counters.args_repair, counters.multi_action) == counts


def test_what_the_model_was_shown_wins(make_run):
    """The reduced observation is read where it can be; else the whole one."""
    bad, clean = {"repair_outcome": {"args_repaired": True}}, {"repair_outcome": {}}
    for shown, expected in ((clean, False), ("a cut text", True), (None, True)):
        step = Step(action=ESCAPE, observation=bad, llm_observation=shown)
        assert count_declarative_outcome(make_run(trajectory=Trajectory(steps=[step]))) is expected


def test_only_the_last_step_and_only_that_tool(make_run):
    """Earlier steps, other tools, parallel calls and absent parts count nothing."""
    bad = {"repair_outcome": {"args_repaired": True}}
    for trajectory in (
        None,
        Trajectory(),
        Trajectory(steps=[Step(action=ESCAPE, observation=bad), Step(action=CallTool("a"), observation={})]),
        Trajectory(steps=[Step(action=CallTool("other"), observation=bad)]),
        Trajectory(steps=[Step(action=CallParallel((ESCAPE,)), observation=bad)]),
        Trajectory(steps=[Step(action=None, observation=bad)]),
    ):
        assert not count_declarative_outcome(make_run(trajectory=trajectory))
    step = Step(action=ESCAPE, observation=bad)
    assert not count_declarative_outcome(make_run(repair_counters=None, trajectory=Trajectory(steps=[step])))


def test_a_history_that_was_read_back(make_run):
    """After a restart the outcome counts as before."""
    bad = {"repair_outcome": {"args_repaired": True}}
    trajectory = Trajectory(steps=[Step(action=ESCAPE, observation=bad)])
    again = Trajectory.deserialize(codec.encode(trajectory))
    assert count_declarative_outcome(make_run(trajectory=again))


@each_row(
    "decision, expected",
    [
        (ESCAPE, True),
        (CallTool("a"), False),
        (CallParallel((CallTool("a"), ESCAPE)), True),
        (CallParallel((CallTool("a"),)), False),
        (Finish(FinishReason.GOAL), False),
    ],
)
def test_dispatching_the_declarative_action(decision, expected):
    """It is dispatched alone or in any branch."""
    assert is_declarative_action(decision) is expected
