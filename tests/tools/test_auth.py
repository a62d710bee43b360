"""Values that show who calls: they take references to secrets, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harborage.errors import InvalidOptionError
from harborage.secrets import Secret, secret
from harborage.tools.auth import ApiKey, Bearer, CookieAuth


@pytest.mark.parametrize("make", [Bearer, ApiKey, lambda given: CookieAuth("session", given)])
def test_a_plain_text_is_refused_and_not_repeated(make: Callable[[object], object]) -> None:
    """A secret in the code would be in every copy of it; the refusal says how to write a reference."""
    for given in ("hunter2", None, Secret()):
        with pytest.raises(InvalidOptionError, match=r'secret\("env:NAME"\)') as refused:
            make(given)
        assert "hunter2" not in str(refused.value)
    assert "hunter2" not in repr(make(secret("env:KEY")))


def test_a_key_has_one_place() -> None:
    """A key in a header and in the query would be in every log of addresses."""
    with pytest.raises(InvalidOptionError, match="two places"):
        ApiKey(secret("env:KEY"), "X-Key", "key")
    with pytest.raises(InvalidOptionError, match="CookieAuth"):
        CookieAuth("", secret("env:KEY"))
