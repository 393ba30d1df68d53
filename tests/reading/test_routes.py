"""The decision, as a table."""

import pytest

from mmchunks.errors import DeviceError, PlanError
from mmchunks.reading.routes import Facts, asked, choose

MIB = 1 << 20


def facts(**changes):
    usual = {
        "kind": "ext4",
        "local": True,
        "readahead_nbytes": 128 << 10,
        "resident": 0.0,
        "span_nbytes": 64 * MIB,
        "nbytes": 64 * MIB,
        "memory_nbytes": 1024 * MIB,
    }
    return Facts(**{**usual, **changes})


@pytest.mark.parametrize(
    ("changes", "io", "warm", "reason"),
    [
        ({}, "mmap", True, "0%; a bare map would wait"),
        ({"resident": 0.5}, "mmap", True, "50%; a bare map would wait"),
        ({"resident": None}, "mmap", True, "unknown; a bare map would wait"),
        ({"resident": 1.0}, "mmap", False, "100% is in the page cache"),
        ({"readahead_nbytes": 8 * MIB}, "mmap", False, "reads 8,388,608 bytes ahead"),
        (
            {"readahead_nbytes": 8 * MIB, "nbytes": MIB, "span_nbytes": MIB},
            "mmap",
            True,
            "would wait",
        ),
        ({"readahead_nbytes": 8 * MIB, "span_nbytes": 2048 * MIB}, "mmap", True, "would wait"),
        ({"readahead_nbytes": 8 * MIB, "span_nbytes": 512 * MIB}, "mmap", False, "bytes ahead"),
        ({"readahead_nbytes": None}, "mmap", True, "would wait"),
        ({"nbytes": 600 * MIB}, "mmap", False, "the page cache would not hold it"),
        ({"kind": "nfs4", "local": False}, "pread", False, "nfs4 may be written by other hosts"),
        ({"local": False, "resident": 1.0}, "pread", False, "may be written by other hosts"),
        ({"nbytes": 0, "local": False}, "mmap", False, "empty"),
    ],
)
def test_the_way_follows_from_what_was_seen(changes, io, warm, reason):
    route = choose(facts(**changes))
    assert (route.io, route.warm) == (io, warm)
    assert reason in route.reason


@pytest.mark.parametrize("io", ["mmap", "pread", "direct"])
def test_what_is_asked_for_is_taken(io):
    route = asked(io, "cpu")
    assert (route.io, route.warm, route.reason) == (io, False, f'io="{io}" was asked for')


def test_auto_asks_for_a_look():
    assert asked("auto", "cpu") is None


def test_gds_leads_to_a_gpu_only():
    assert asked("gds", "gpu").io == "gds"
    with pytest.raises(DeviceError, match="leads to a GPU"):
        asked("gds", "cpu")


def test_an_unknown_way_is_named_with_the_known_ones():
    with pytest.raises(PlanError, match=r'"mmap", "pread".*got \'nmap\''):
        asked("nmap", "cpu")
