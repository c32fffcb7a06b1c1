"""Interfaces are told apart, and addresses are tried in an order that makes sense."""

from node.io.interfaces import (
    Interface,
    advertised_addresses,
    dial_order,
    guess_medium,
    list_interfaces,
    medium_towards,
    parse_hardware_ports,
    plain_host,
)
from node.model.machine import Address

LOOPBACK = Interface(
    "lo0", 1, ("127.0.0.1", "::1", "fe80::1"), ("127.0.0.0/8", "::1/128", "fe80::/64"), "loopback"
)
WIFI = Interface("en0", 4, ("192.168.1.5", "fe80::aa"), ("192.168.1.0/24", "fe80::/64"), "wifi")
ETHERNET = Interface("en8", 9, ("10.0.0.5", "fe80::bb"), ("10.0.0.0/24", "fe80::/64"), "ethernet")
BRIDGE = Interface("bridge0", 7, ("169.254.7.1",), ("169.254.0.0/16",), "thunderbolt")
TABLE = (BRIDGE, ETHERNET, LOOPBACK, WIFI)


def test_this_machine_has_a_loopback_interface():
    loopback = [interface for interface in list_interfaces() if interface.is_loopback]
    assert any("127.0.0.1" in interface.addresses for interface in loopback)


def test_ports_of_a_mac_are_read_from_its_own_listing():
    listing = (
        "\nHardware Port: Ethernet\nDevice: en8\nEthernet Address: 00:00:00:00:00:00\n"
        "\nHardware Port: Wi-Fi\nDevice: en0\nEthernet Address: 00:00:00:00:00:01\n"
        "\nHardware Port: Thunderbolt Bridge\nDevice: bridge0\nEthernet Address: N/A\n"
        "\nVLAN Configurations\n===================\n"
    )
    ports = parse_hardware_ports(listing)
    assert ports == {"en8": "Ethernet", "en0": "Wi-Fi", "bridge0": "Thunderbolt Bridge"}
    media = {name: guess_medium(name, [], ports) for name in [*ports, "utun3", "en5"]}
    assert media == {
        "en8": "ethernet",
        "en0": "wifi",
        "bridge0": "thunderbolt",
        "utun3": "vpn",
        "en5": "",
    }
    assert parse_hardware_ports("nonsense\n: :\n") == {}


def test_the_fastest_medium_is_tried_first():
    wifi, ethernet = Address("192.168.1.9", 1), Address("10.0.0.9", 1)
    thunderbolt, unknown = Address("169.254.9.9", 1), Address("studio.example", 1)
    order = dial_order([wifi, unknown, ethernet, thunderbolt], TABLE)
    assert order == (thunderbolt, ethernet, unknown, wifi)


def test_a_link_local_address_is_tried_on_every_interface_that_has_one():
    order = dial_order([Address("fe80::99", 7)], (ETHERNET, WIFI, BRIDGE))
    assert order == (Address("fe80::99%en8", 7), Address("fe80::99%en0", 7))
    scoped = Address("fe80::99%en0", 7)
    assert dial_order([scoped], TABLE) == (scoped,)


def test_addresses_of_the_machine_are_announced_without_loopback():
    announced = advertised_addresses(TABLE, "", 52416)
    assert [address.host for address in announced] == [
        "169.254.7.1",
        "10.0.0.5",
        "fe80::bb",
        "192.168.1.5",
        "fe80::aa",
    ]
    assert all(":" not in one.host for one in advertised_addresses(TABLE, "0.0.0.0", 1))
    assert advertised_addresses(TABLE, "127.0.0.1", 7) == (Address("127.0.0.1", 7),)


def test_the_medium_of_a_connection_is_that_of_its_own_address():
    assert medium_towards(TABLE, "10.0.0.5") == "ethernet"
    assert medium_towards(TABLE, "fe80::aa%en0") == "wifi"
    assert medium_towards(TABLE, "203.0.113.1") == ""


def test_an_ipv4_address_that_came_by_ipv6_is_ipv4():
    assert plain_host("::ffff:10.0.0.1") == "10.0.0.1"
    assert plain_host("fe80::1%en0") == "fe80::1%en0"
    assert plain_host("host.example") == "host.example"
