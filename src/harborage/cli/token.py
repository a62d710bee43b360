"""`harborage token`: signs a token for a client of a server, or makes the key that signs.

Reading help must stay cheap, so what signs is imported when the command is used.
"""

from __future__ import annotations

import re
import sys
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from cyclopts import Parameter

from harborage.cli.storage import Debug, WrongUseError, run_command

_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_MOST_S: Final = 366 * 86_400


class _Options(msgspec.Struct, frozen=True, kw_only=True):
    tenant: str
    user: str
    session: str
    scopes: tuple[str, ...]
    key: str
    ttl: str
    issuer: str
    audience: str
    new_key: str


def token(
    *,
    tenant: Annotated[str, Parameter(help="The tenant that the token is for.", show_default=False)] = "",
    user: Annotated[str, Parameter(help="The user that the token is for.", show_default=False)] = "",
    session: Annotated[
        str, Parameter(help="The session of requests that name none.", show_default="each request names one")
    ] = "",
    scope: Annotated[
        tuple[Literal["admin", "console:fleet"], ...],
        Parameter(help="What the token may do beyond its user's own.", negative="", show_default="nothing"),
    ] = (),
    key: Annotated[str, Parameter(help="The private key: PEM or JWK, RSA or EC.", show_default=False)] = "",
    ttl: Annotated[str, Parameter(help="How long it is valid, such as 15m, 1h or 7d.")] = "1h",
    issuer: Annotated[str, Parameter(help="Its issuer, where the server asks for one.", show_default=False)] = "",
    audience: Annotated[str, Parameter(help="Its audience, where the server asks for one.", show_default=False)] = "",
    new_key: Annotated[str, Parameter(help="Write a new private key to this file.", show_default=False)] = "",
    debug: Debug = False,
) -> int:
    """Sign a token for a client of a server, and print it alone.

    Example: harborage token --tenant acme --user ada --key harbor.pem

    --new-key harbor.pem writes the private key, which only you can read, and
    harbor.jwks.json, the public keys by which a server verifies the tokens.
    Nothing is replaced. Whoever has the private key can sign for anybody.

    A token cannot be taken back before its time is over, unless its key leaves
    the public keys of the server. So give it no more time than it needs.

    Exit codes:
      0  done
      2  wrong use: no usable key, no principal; nothing was written
    """
    options = _Options(
        tenant=tenant.strip(),
        user=user.strip(),
        session=session.strip(),
        scopes=scope,
        key=key.strip(),
        ttl=ttl.strip(),
        issuer=issuer.strip(),
        audience=audience.strip(),
        new_key=new_key.strip(),
    )
    return run_command(lambda: _token(options), debug=debug)


async def _token(options: _Options) -> int:
    if options.new_key:
        _make_key(options)
    else:
        _sign(options)
    return 0


def _make_key(options: _Options) -> None:
    if options.key or options.tenant or options.user:
        raise WrongUseError("--new-key makes a key and signs nothing; then sign with --key FILE")
    from harborage.server.auth.minting import write_new_key

    public = write_new_key(Path(options.new_key))
    sys.stderr.write(
        f"wrote {options.new_key}, the private key: keep it where only what signs can read it\n"
        f"wrote {public}, the public keys: give these to the server\n"
        f"sign: harborage token --tenant TENANT --user USER --key {options.new_key}\n"
    )


def _sign(options: _Options) -> None:
    lifetime = _lifetime(options.ttl)
    missing = [f"--{name}" for name in ("tenant", "user") if not getattr(options, name)]
    if missing:
        raise WrongUseError(f"a token is for one user of one tenant: give {' and '.join(missing)}")
    if not options.key:
        raise WrongUseError("no key to sign with: give --key FILE; harborage token --new-key FILE makes one")
    from harborage.server.auth.minting import TokenMint, load_signing_key

    mint = TokenMint(
        key=load_signing_key(Path(options.key)),
        issuer=options.issuer,
        audience=options.audience,
        lifetime=lifetime,
    )
    signed, _ = mint.sign(options.tenant, options.user, options.session, options.scopes)
    sys.stdout.write(f"{signed}\n")


def _lifetime(text: str) -> timedelta:
    """Return the time that a text such as `15m` says.

    Raises:
        WrongUseError: it says none, or one beyond a year.
    """
    found = re.fullmatch(r"([0-9]{1,9})([smhd]?)", text.lower())
    seconds = int(found[1]) * _UNITS[found[2]] if found else 0
    if not 0 < seconds <= _MOST_S:
        raise WrongUseError(f"--ttl {text!r} is no time up to a year; give one such as 15m, 1h or 7d")
    return timedelta(seconds=seconds)
