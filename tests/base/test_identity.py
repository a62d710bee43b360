"""Identity is complete or refused, its two ambient slots are apart, and concurrent tasks never see each other's."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from contextvars import copy_context
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harborage import codec
from harborage.identity import (
    Identity,
    IdentityError,
    IdentityIncompleteError,
    IdentityMissingError,
    IdentityRequiredError,
    Quadruple,
    bind,
    bind_run,
    bind_scopes,
    bound,
    current_identity,
    current_quadruple,
    current_scopes,
    effective_quadruple,
    missing_parts,
    must_identity,
    must_quadruple,
    require_quadruple,
    require_triple,
    validate,
)
from tests.kit.tables import each_row

ADA = Identity("tenant", "ada", "session")
BOB = Identity("tenant", "bob", "session")
PARTS = ("tenant_id", "user_id", "session_id")


@pytest.fixture(autouse=True)
def _nothing_left_bound() -> None:
    """No test starts with what another one bound."""
    assert effective_quadruple() is None


def alone(work: object) -> None:
    """Run a synchronous test body in a context of its own, so that what it binds ends with it."""
    copy_context().run(work)  # type: ignore[arg-type]


def test_identities_are_equal_by_value_and_hashable() -> None:
    """Two with equal parts are the same key; a difference in any part makes them different."""
    assert {Identity("t", "u", "s"), Identity("t", "u", "s")} == {Identity("t", "u", "s")}
    assert (
        len({Identity("t", "u", "s"), Identity("x", "u", "s"), Identity("t", "x", "s"), Identity("t", "u", "x")}) == 4
    )
    assert len({Quadruple("t", "u", "s", ""), Quadruple("t", "u", "s", "r")}) == 2


def test_identities_cannot_be_changed() -> None:
    """They are values: a part cannot be set later."""
    with pytest.raises(AttributeError):
        ADA.user_id = "bob"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        ADA.with_run("r").run_id = "x"  # type: ignore[misc]


def test_a_quadruple_is_an_identity_in_a_run() -> None:
    """The run can be added and left off again."""
    assert ADA.with_run("r") == Quadruple("tenant", "ada", "session", "r")
    assert ADA.with_run("r").identity == ADA


def test_a_quadruple_is_flat_on_the_wire() -> None:
    """Event payloads carry these four keys."""
    assert codec.encode(ADA.with_run("r")) == b'{"TenantID":"tenant","UserID":"ada","SessionID":"session","RunID":"r"}'
    assert codec.decode(codec.encode(ADA.with_run("r")), Quadruple) == ADA.with_run("r")


@pytest.mark.parametrize("part", PARTS)
def test_an_empty_part_is_named(part: str) -> None:
    """The error names exactly the part that is missing, in its text and as an attribute."""
    parts = dict.fromkeys(PARTS, "x") | {part: ""}
    with pytest.raises(IdentityIncompleteError, match=f"incomplete: {part} is empty") as caught:
        validate(Identity(**parts))
    assert caught.value.missing == (part,)
    with pytest.raises(IdentityIncompleteError, match=part):
        validate(Quadruple(**parts, run_id="r"))


def test_two_empty_parts_are_both_named() -> None:
    """In their order."""
    with pytest.raises(IdentityIncompleteError, match="tenant_id, session_id are empty"):
        validate(Identity("", "u", ""))


def test_an_empty_identity_is_called_so() -> None:
    """All three missing is said in one phrase."""
    with pytest.raises(IdentityIncompleteError, match="tenant_id, user_id and session_id are all empty"):
        validate(Identity("", "", ""))


@given(st.builds(Identity, *[st.sampled_from(["", " ", "\t", "x"])] * 3))
def test_only_the_empty_string_is_missing(who: Identity) -> None:
    """White space is a value like any other."""
    empty = tuple(part for part in PARTS if getattr(who, part) == "")
    assert missing_parts(who) == empty
    if empty:
        with pytest.raises(IdentityIncompleteError):
            validate(who)
    else:
        validate(who)


def test_the_run_counts_only_when_it_is_asked_for() -> None:
    """A quadruple without a run is a complete triple."""
    assert missing_parts(ADA.with_run("")) == ()
    assert missing_parts(ADA.with_run(""), run=True) == ("run_id",)


@pytest.mark.parametrize("who", [None, Identity("", "u", "s"), Identity("t", "", "s"), Quadruple("t", "u", "", "r")])
def test_an_operation_names_itself_when_the_triple_is_not_complete(who: Identity | Quadruple | None) -> None:
    """The error tells which call was refused and what was missing."""
    with pytest.raises(IdentityRequiredError, match=r"^tasks\.get: identity (required, none given|incomplete: \w+ is)"):
        require_triple(who, "tasks.get")


@pytest.mark.parametrize(("part", "index"), [(part, index) for index, part in enumerate((*PARTS, "run_id"))])
def test_an_operation_in_a_run_needs_all_four(part: str, index: int) -> None:
    """Each of the four parts may be the missing one."""
    parts = ["x", "x", "x", "x"]
    parts[index] = ""
    with pytest.raises(IdentityRequiredError, match=f"run: identity incomplete: {part} is empty"):
        require_quadruple(Quadruple(*parts), "run")


def test_a_complete_identity_is_accepted() -> None:
    """For a triple a run is welcome and not needed."""
    require_triple(ADA, "x")
    require_triple(ADA.with_run(""), "x")
    require_quadruple(ADA.with_run("r"), "x")
    with pytest.raises(IdentityRequiredError, match="none given"):
        require_quadruple(None, "x")


def test_the_errors_have_one_root() -> None:
    """One except catches every identity problem."""
    for kind in (IdentityIncompleteError, IdentityMissingError, IdentityRequiredError):
        assert issubclass(kind, IdentityError)


def test_nothing_is_bound_at_first() -> None:
    """The readers say None, the strict ones raise and say what to do, and nobody has a claim."""
    assert (current_identity(), current_quadruple(), effective_quadruple()) == (None, None, None)
    assert current_scopes() == frozenset()
    for reader in (must_identity, must_quadruple):
        with pytest.raises(IdentityMissingError, match="bind one with"):
            reader()


def test_an_identity_alone_makes_no_quadruple() -> None:
    """The slots are apart: binding an identity leaves the quadruple slot empty, and the effective run blank."""

    def body() -> None:
        bind(ADA)
        assert (current_identity(), current_quadruple()) == (ADA, None)
        assert effective_quadruple() == ADA.with_run("")
        assert must_identity() == ADA
        with pytest.raises(IdentityMissingError):
            must_quadruple()

    alone(body)


def test_a_quadruple_alone_makes_no_identity() -> None:
    """Binding a run leaves the identity slot empty."""

    def body() -> None:
        bind_run(ADA, "r")
        assert (current_identity(), current_quadruple()) == (None, ADA.with_run("r"))
        assert effective_quadruple() == must_quadruple() == ADA.with_run("r")
        with pytest.raises(IdentityMissingError):
            must_identity()

    alone(body)


def test_the_quadruple_goes_before_the_identity() -> None:
    """Where both are bound, services read the quadruple."""

    def body() -> None:
        bind(BOB)
        bind_run(ADA, "r")
        assert effective_quadruple() == ADA.with_run("r")
        assert current_identity() == BOB

    alone(body)


def test_a_refused_binding_changes_nothing() -> None:
    """After an incomplete identity or an empty run the context is what it was."""

    def body() -> None:
        bind(ADA)
        bind_run(ADA, "r")
        for broken in (Identity("", "u", "s"), Identity("t", "", "s"), Identity("t", "u", "")):
            with pytest.raises(IdentityIncompleteError):
                bind(broken)
            with pytest.raises(IdentityIncompleteError):
                bind_run(broken, "r2")
            with pytest.raises(IdentityIncompleteError), bound(broken, scopes=frozenset({"admin"})):
                pytest.fail("the block must not begin")
        with pytest.raises(IdentityIncompleteError, match="run_id is empty"):
            bind_run(BOB, "")
        assert (current_identity(), current_quadruple(), current_scopes()) == (ADA, ADA.with_run("r"), frozenset())

    alone(body)


def test_claims_are_bound_beside_the_identity() -> None:
    """Scopes are read back as they were bound."""

    def body() -> None:
        bind_scopes(frozenset({"admin"}))
        assert current_scopes() == {"admin"}

    alone(body)


def test_a_block_binds_both_slots_and_restores_them() -> None:
    """Inside, a quadruple fills both slots; afterwards everything is as before, also after an error."""

    def body() -> None:
        bind(ADA)
        bind_run(ADA, "outer")
        bind_scopes(frozenset({"old"}))
        with suppress(KeyError), bound(BOB.with_run("inner"), scopes=frozenset({"new"})):
            assert (current_identity(), current_quadruple()) == (BOB, BOB.with_run("inner"))
            assert current_scopes() == {"new"}
            raise KeyError
        assert (current_identity(), current_quadruple()) == (ADA, ADA.with_run("outer"))
        assert current_scopes() == {"old"}

    alone(body)


@pytest.mark.parametrize("who", [BOB, BOB.with_run("")])
def test_a_block_without_a_run_hides_the_run_outside(who: Identity | Quadruple) -> None:
    """Work done for somebody else inside a run never reads that run's owner as its own."""

    def body() -> None:
        bind_run(ADA, "outer")
        with bound(who):
            assert (current_quadruple(), effective_quadruple()) == (None, BOB.with_run(""))
        assert effective_quadruple() == ADA.with_run("outer")

    alone(body)


def test_a_block_keeps_claims_that_it_does_not_name() -> None:
    """Without `scopes` the claims stay; with an empty set there are none."""

    def body() -> None:
        bind_scopes(frozenset({"admin"}))
        with bound(ADA):
            assert current_scopes() == {"admin"}
        with bound(ADA, scopes=frozenset()):
            assert current_scopes() == frozenset()

    alone(body)


async def test_concurrent_tasks_never_see_each_others_binding() -> None:
    """A hundred tasks that bind and yield in turn each read only what they bound themselves."""

    async def one(number: int) -> list[Quadruple | None]:
        seen = []
        for turn in range(3):
            who = Identity(f"tenant {number % 7}", f"user {number}", "session")
            bind(who)
            bind_run(who, f"run {turn}")
            await asyncio.sleep(0)
            seen.append(effective_quadruple() if current_identity() == who else None)
        return seen

    got = await asyncio.gather(*(one(number) for number in range(100)))
    wanted = [
        [Quadruple(f"tenant {n % 7}", f"user {n}", "session", f"run {turn}") for turn in range(3)] for n in range(100)
    ]
    assert got == wanted
    assert effective_quadruple() is None


async def test_a_task_inherits_what_is_bound_when_it_starts() -> None:
    """A child reads its parent's binding; what it binds itself does not come back."""

    async def child() -> Quadruple | None:
        inherited = effective_quadruple()
        bind_run(BOB, "child")
        return inherited

    with bound(ADA.with_run("r")):
        assert await asyncio.create_task(child()) == ADA.with_run("r")
        assert effective_quadruple() == ADA.with_run("r")


async def test_a_block_holds_across_awaits() -> None:
    """Two interleaved blocks in two tasks keep their own identities to the end."""

    async def one(who: Identity) -> set[Identity | None]:
        seen = set()
        with bound(who):
            for _ in range(5):
                await asyncio.sleep(0)
                seen.add(current_identity())
        return seen

    assert await asyncio.gather(one(ADA), one(BOB)) == [{ADA}, {BOB}]


@each_row("missing", list(product([True, False], repeat=3)))
def test_every_combination_of_missing_parts_is_reported_in_order(missing: tuple[bool, ...]) -> None:
    """The eight combinations name their empty parts, first tenant, then user, then session."""
    who = Identity(*("" if is_missing else "x" for is_missing in missing))
    assert missing_parts(who) == tuple(part for part, is_missing in zip(PARTS, missing, strict=True) if is_missing)
