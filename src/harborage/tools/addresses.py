"""Which hosts and addresses of the network are refused to URLs that come from outside, and how names are looked up.

Every rule is about the numeric address that a connection is made to, and about texts that mean such an address without
looking like one.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

IP: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

Resolve: TypeAlias = Callable[[str, int], Awaitable[list[str]]]
"""The numeric addresses of a host, in the order in which they should be tried."""

_NUMBER: Final = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)", re.IGNORECASE)
_NAME: Final = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?")
_LOCAL_NAMES: Final = ("localhost", "local", "internal", "localdomain", "intranet", "lan")

# Public numbers that clouds answer on inside their own networks.
_METADATA: Final = frozenset({ipaddress.ip_address("168.63.129.16"), ipaddress.ip_address("192.0.0.192")})
_NAT64: Final = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("64:ff9b:1::/48"))
_COMPATIBLE: Final = ipaddress.IPv6Network("::/96")
_SITE_LOCAL: Final = ipaddress.IPv6Network("fec0::/10")


def is_literal(host: str) -> bool:
    """Whether a host is an address already and needs no name server."""
    return _parse_address(host) is not None


def explain_refused_host(host: str, *, allow_private: bool) -> str:
    """Return why a URL's host is refused, before any lookup; empty when it is allowed."""
    if not host:
        return "it has no host"
    if _parse_address(host) is not None:
        return ""
    if ":" in host or "%" in host or _NAME.fullmatch(host) is None:
        return "its host is not a plain name or address"
    bare = host.rstrip(".").lower()
    if _NUMBER.fullmatch(bare.rpartition(".")[2]):
        return "its host is a number in disguise; write an address as four decimal numbers"
    if not allow_private and (bare.rpartition(".")[2] in _LOCAL_NAMES or bare.endswith("home.arpa")):
        return "its host is a name of this machine or of a private network"
    return ""


def explain_refused_address(address: str, *, allow_private: bool) -> str:
    """Return why a connection to this numeric address is refused; empty when it is allowed.

    `allow_private` lets loopback and private networks through. Link-local addresses, where clouds keep credentials,
    are refused all the same, and so is what is no single host.
    """
    found = _parse_address(address)
    if found is None:
        return "it is no IP address"
    embedded = _list_embedded(found)
    # A mapped address is judged by the address inside; tunnels also by their own.
    judged = embedded if embedded and not _is_tunnel(found) else (found, *embedded)
    return next((reason for each in judged if (reason := _explain_refusal(each, allow_private))), "")


def _explain_refusal(address: IP, allow_private: bool) -> str:
    if address.is_link_local or address in _METADATA:
        return "it is a link-local or metadata address"
    if address.is_multicast or address.is_unspecified or _is_broadcast(address):
        return "it is not the address of a single host"
    if allow_private:
        return ""
    if not address.is_global or address.is_private or address.is_reserved or _is_site_local(address):
        return "it is an address of this machine or of a private network"
    return ""


def _is_tunnel(address: IP) -> bool:
    return isinstance(address, ipaddress.IPv6Address) and bool(address.sixtofour or address.teredo)


def _list_embedded(address: IP) -> list[IP]:
    """Return the IPv4 addresses inside an IPv6 address, by every scheme that routes to them."""
    if not isinstance(address, ipaddress.IPv6Address):
        return []
    embedded: list[IP | None] = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    low = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if any(address in network for network in _NAT64) or (address in _COMPATIBLE and int(address) > 1):
        embedded.append(low)
    return [one for one in embedded if one is not None]


def _parse_address(text: str) -> IP | None:
    """Parse an address in the usual form; a zone such as `%eth0` is not part of one."""
    try:
        return ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return None


def _is_broadcast(address: IP) -> bool:
    return isinstance(address, ipaddress.IPv4Address) and int(address) == 0xFFFFFFFF


def _is_site_local(address: IP) -> bool:
    return isinstance(address, ipaddress.IPv6Address) and address in _SITE_LOCAL


async def look_up(host: str, port: int) -> list[str]:
    """Return the numeric addresses of a host, as the system knows them.

    Raises:
        OSError: the name is not known.
    """
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))
