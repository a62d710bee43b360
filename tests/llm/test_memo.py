"""What was worked out of a message is kept beside it, and is no part of its value."""

from __future__ import annotations

import copy
import pickle

import pytest
from msgspec.structs import asdict, replace

from harborage import codec
from harborage.llm import ChatMessage, Content, Role
from harborage.llm.memo import kept_with


def message() -> ChatMessage:
    """A message that is nobody else's."""
    return ChatMessage(Role.USER, Content("hi"))


def test_it_is_made_once() -> None:
    """The same message gives what it gave before; another one that is equal has its own."""
    one, other, made = message(), message(), []
    assert [kept_with(each, "n", lambda it: made.append(it) or len(made)) for each in (one, one, other, one)] == [
        1,
        1,
        2,
        1,
    ]


def test_a_failure_is_not_kept() -> None:
    """It is tried again."""
    one = message()
    with pytest.raises(ZeroDivisionError):
        kept_with(one, "n", lambda _: 1 // 0)
    assert kept_with(one, "n", lambda _: 7) == 7


def test_nobody_sees_it() -> None:
    """It is neither compared nor printed nor encoded, and a copy begins without it."""
    one = message()
    kept_with(one, "n", lambda _: 7)
    assert one == message()
    assert hash(one) == hash(message())
    assert (repr(one), codec.encode(one), asdict(one)) == (repr(message()), codec.encode(message()), asdict(message()))
    for twin in (replace(one), copy.copy(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert vars(twin) == {}
