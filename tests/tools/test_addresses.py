"""Which hosts and addresses are never asked."""

from __future__ import annotations

import ipaddress

from hypothesis import given
from hypothesis import strategies as st

from harborage.tools.addresses import explain_refused_address, explain_refused_host
from tests.kit.tables import each_row

PRIVATE = [
    "127.0.0.1",
    "127.255.255.254",
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "100.64.0.1",
    "100.100.100.200",
    "198.18.0.1",
    "192.0.2.1",
    "240.0.0.1",
    "0.1.2.3",
    "::1",
    "fc00::1",
    "fd00:ec2::254",
    "fec0::1",
    "2001:db8::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:7f00:1",
    "::127.0.0.1",
    "::ffff:0:127.0.0.1",
    "64:ff9b::127.0.0.1",
    "64:ff9b::c0a8:101",
    "2002:7f00:1::",
    "2002:c0a8:101::1",
    "2001:0:7f00:1:0:0:0:0",
]
NEVER = [
    "169.254.169.254",
    "169.254.170.2",
    "168.63.129.16",
    "fe80::1",
    "fe80::1%eth0",
    "::ffff:169.254.169.254",
    "64:ff9b::169.254.169.254",
    "2002:a9fe:a9fe::1",
    "0.0.0.0",
    "::",
    "255.255.255.255",
    "224.0.0.1",
    "ff02::1",
    "::ffff:0.0.0.0",
    "no address",
    "",
]
PUBLIC = ["1.1.1.1", "93.184.216.34", "2606:4700:4700::1111", "::ffff:1.1.1.1", "64:ff9b::1.1.1.1"]


@each_row("address", [*PRIVATE, *NEVER])
def test_an_address_of_the_inside_is_refused(address: str) -> None:
    """However it is wrapped: mapped, compatible, 6to4, Teredo or NAT64."""
    assert explain_refused_address(address, allow_private=False)


@each_row("address", PUBLIC)
def test_a_public_address_is_asked(address: str) -> None:
    """In either family."""
    assert explain_refused_address(address, allow_private=False) == ""


@each_row("address", NEVER)
def test_metadata_and_what_is_no_host_is_refused_even_on_an_intranet(address: str) -> None:
    """Where clouds keep credentials is nobody's intranet."""
    assert explain_refused_address(address, allow_private=True)


@each_row("address", ["127.0.0.1", "10.0.0.1", "::1", "fc00::1", "::ffff:127.0.0.1", "1.1.1.1"])
def test_an_intranet_is_asked_when_that_is_allowed(address: str) -> None:
    """Loopback and private networks, and the rest of the world all the same."""
    assert explain_refused_address(address, allow_private=True) == ""


@given(st.ip_addresses(v=4))
def test_wrapping_an_address_never_helps_it(address: ipaddress.IPv4Address) -> None:
    """An IPv4 address that is refused is refused in every IPv6 form that routes to it."""
    low = int(address)
    wrapped = [
        ipaddress.IPv6Address(0xFFFF << 32 | low),
        ipaddress.IPv6Address(0x2002 << 112 | low << 80),
        ipaddress.IPv6Address(int(ipaddress.IPv6Address("64:ff9b::")) | low),
    ]
    if explain_refused_address(str(address), allow_private=False):
        assert all(explain_refused_address(str(one), allow_private=False) for one in wrapped)


@each_row(
    "host",
    [
        "",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "0177.0.0.1",
        "0177.0.0.01",
        "127.1",
        "127.0.1",
        "1.2.3.4.",
        "10.0.0.256",
        "1.2.3.4.5",
        "example.0x10",
        "localhost",
        "LOCALHOST.",
        "a.localhost",
        "printer.local",
        "metadata.google.internal",
        "router.home.arpa",
        "home.arpa",
        "exa mple.com",
        "exam%70le.com",
        "a:b",
        "-x.com",
        "ex\u2024ample.com",
    ],
)
def test_a_host_in_disguise_is_refused_before_it_is_looked_up(host: str) -> None:
    """Numbers in other notations, local names, and what is no name at all."""
    assert explain_refused_host(host, allow_private=False)


@each_row("host", ["example.com", "example.com.", "a_b.example.com", "xn--bcher-kva.ch", "1.1.1.1", "::1"])
def test_a_plain_name_or_address_is_looked_at_further(host: str) -> None:
    """What an address stands for is judged by the address itself."""
    assert explain_refused_host(host, allow_private=False) == ""


def test_local_names_are_asked_where_private_networks_are_allowed() -> None:
    """Disguised numbers are not, even there."""
    assert explain_refused_host("localhost", allow_private=True) == ""
    assert explain_refused_host("wiki.internal", allow_private=True) == ""
    assert explain_refused_host("2130706433", allow_private=True)
