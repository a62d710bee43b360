"""Guidance grows firmer with each slip, and says nothing while there is none."""

from __future__ import annotations

import itertools

from harborage.planner import RepairCounters, react
from harborage.planner.react import RepairTier, repair_tier
from harborage.planner.react.guidance import guidance_lines
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
    lines = guidance_lines(RepairCounters(finish_repair=3, args_repair=1, multi_action=2))
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
        lines = guidance_lines(counters)
        assert len(lines) == sum(count > 0 for count in counts)
        assert all(line.text.startswith(f"{line.tier}: ") for line in lines)
        assert counters == RepairCounters(*counts)


def test_no_counters_no_guidance():
    """A run without counters gets none."""
    assert guidance_lines(None) == []
