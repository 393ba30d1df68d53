"""The command line: one sentence for people, one object for programs, and real exit codes."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from mmchunks.cli.commands import main

MODEL = """
import numpy as np

def product(a, b):
    if a == 3:
        raise ValueError("three is not supported")
    return np.full(5, a * b, "f4")
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run the command line in an empty folder; returns its standard output."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments, code=0):
        result = CliRunner().invoke(main, [str(argument) for argument in arguments])
        assert result.exit_code == code, result.output
        return result.output

    return run


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    """A module and scenarios in the current folder."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "cli_model", raising=False)
    (tmp_path / "cli_model.py").write_text(MODEL)
    (tmp_path / "scenarios.json").write_text(json.dumps({"a": [1, 2, 3], "b": [10, 20]}))
    return "cli_model:product", "scenarios.json", "out.npy"


def test_info(run, ramp):
    assert "1,000 x 17" in run("info", ramp[0])
    facts = json.loads(run("info", ramp[0], "--json"))
    assert (facts["shape"], facts["dtype"], facts["offset"]) == ([1000, 17], "float32", 128)
    assert facts["local"] in {True, False}


def test_info_of_a_raw_file(run, tmp_path):
    np.arange(10, dtype=">i2").tofile(tmp_path / "x.bin")
    facts = json.loads(run("info", "x.bin", "--dtype", ">i2", "--shape", "5x2", "--json"))
    assert facts["shape"] == [5, 2]


def test_info_tells_of_bytes_after_the_data(run, ramp):
    with open(ramp[0], "ab") as file:
        file.write(bytes(2048))
    assert "2.00 KiB not read" in run("info", ramp[0])


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [("100,-1", 10), ("[[600, 400], 17]", 2), ('{"0": 500, "1": -1}', 2), ("1 MiB", 1)],
)
def test_plan_takes_dasks_chunks(run, ramp, chunks, expected):
    from mmchunks.planning.plans import Plan

    assert "1000" in run("plan", ramp[0], "--chunks", chunks).replace(",", "")
    facts = json.loads(run("plan", ramp[0], "--chunks", chunks, "--json", "--align", "none"))
    assert len(Plan.from_json(json.dumps(facts["plan"]))) == facts["chunks"] == expected
    assert facts["shared_pages"] >= 0


FILES = "nothing.npy", "scenarios.json"  # an error that begins with a file is none of usage


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("info", "nothing.npy"), "nothing.npy: no such file"),
        (("plan", "scenarios.json"), "scenarios.json: is"),
        (("fill", "no.such.module:f", "scenarios.json", "out.npy"), "cannot be imported"),
        (("fill", "json", "scenarios.json", "out.npy"), "write module:name"),
        (("create", "x.npy", "--shape", "a,b", "--dtype", "f4"), "is no shape"),
        (("create", "x.npy", "--shape", "3", "--dtype", "abc"), "is no dtype"),
        (("create", "x.npy", "--shape", "3", "--dtype", "i4", "--fill-value", "abc"), "is no i4"),
        (("fill", "cli_model:product", "cli_model.py", "out.npy"), "is not JSON"),
        (("fill", "broken_model:f", "scenarios.json", "out.npy"), "cannot be imported"),
        (("info", "scenarios.json", "--dtype", "foo"), "is no dtype"),
        (("create", "x.npy", "--shape", "3", "--dtype", "u1", "--fill-value", "300"), "is no u1"),
        (("plan", "scenarios.json", "--chunks", "100,much"), "'much' is no number of bytes"),
        (("plan", "scenarios.json", "--device", "foo"), "'foo' is not one of"),
        (("plan", "scenarios.json", "--chunks", "[3"), "is not JSON"),
        (("plan", "scenarios.json", "--chunks", "[" * 100_000), "is not JSON"),
        (("create", "x.npy", "--shape", "3", "--dtype", "ci16_le"), "is no dtype"),
        (("fill", "math:sqrt", "scenarios.json", "x.npy", "--dtype", "ci16_le"), "is no dtype"),
        (("fill", ":x", "scenarios.json", "out.npy"), "write module:name"),
        (("bench", "x.npy", "--rounds", "0"), "x>=1"),
        (("bench", "x.npy", "--nbytes", "many"), "many"),
        (("window", "a.npy", "b.npy", "--axis", "0", "--axis", "1", "--size", "3"), "1 --size"),
    ],
)
def test_mistakes_are_one_sentence(run, sweep, arguments, sentence):
    Path("broken_model.py").write_text("def f(:")
    output = run(*arguments, code=1 if sentence.startswith(tuple(FILES)) else 2)
    assert sentence in output
    assert "Traceback" not in output


def test_create(run, tmp_path):
    run(
        "create", "x.npy", "--shape", "100,3", "--dtype", "<i2", "--fill-value", "7", "--order", "F"
    )
    made = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert made.shape == (100, 3)
    assert made.flags.f_contiguous
    assert (made == 7).all()
    run("create", "x.npy", "--shape", "1", "--dtype", "<i2", code=1)


def test_a_sweep_is_filled_inspected_and_finished(run, sweep, tmp_path):
    assert "4 rows done" in run("fill", *sweep, "--on-error", "record")
    output = run("status", "out.npy")
    assert "4 of 6 rows done" in output
    assert "{'a': 3, 'b': 10}: ValueError: three is not supported" in output
    status = json.loads(run("status", "out.npy", "--json"))
    assert (status["done"], status["failed"], status["missing"]) == (4, 2, 0)
    assert json.loads(run("verify", "out.npy", "--json"))["ok"]

    (tmp_path / "cli_model.py").write_text(MODEL.replace("a == 3", "a == 5"))
    del sys.modules["cli_model"]
    report = json.loads(run("fill", *sweep, "--json"))
    assert (report["done"], report["skipped"], report["failed"]) == (2, 4, 0)
    expected = [[a * b] * 5 for a in (1, 2, 3) for b in (10, 20)]
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected)

    with open(tmp_path / "out.npy", "r+b") as file:
        file.seek(4096)
        file.write(b"!")
    assert "hold other bytes: rows 0 to 4; with --forget" in run("verify", "out.npy", code=1)
    assert "run the same work again" in run("verify", "out.npy", "--forget", code=1)
    assert "4 rows done" in run("fill", *sweep)
    assert "hold what was written" in run("verify", "out.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected)


def test_parts_and_processes_share_one_sweep(run, sweep, tmp_path, monkeypatch):
    (tmp_path / "cli_model.py").write_text(MODEL.replace("a == 3", "a == 5"))
    run("fill", *sweep, "--part", "1/3")
    for name, value in (("ID", 1), ("MIN", 1), ("MAX", 3), ("STEP", 1)):
        monkeypatch.setenv(f"SLURM_ARRAY_TASK_{name}", str(value))
    run("fill", *sweep, "--part", "auto")
    assert json.loads(run("status", "out.npy", "--json"))["done"] == 4
    out = subprocess.run(
        [sys.executable, "-m", "mmchunks", "fill", *sweep, "--workers", "1"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert "2 rows done" in out.stdout
    assert json.loads(run("status", "out.npy", "--json"))["fraction"] == 1


def test_window_never_writes_onto_its_input(run, ramp, tmp_path):
    before = (tmp_path / "ramp.npy").read_bytes()
    assert "reads this file" in run("window", "ramp.npy", "ramp.npy", "--size", 3, code=1)
    assert (tmp_path / "ramp.npy").read_bytes() == before


def test_window_writes_a_target_and_goes_on(run, ramp, tmp_path):
    path, array = ramp
    arguments = ("window", path, "y.npy", "--size", "30", "--step", "10", "--reduce", "max")
    run(*arguments, "--chunks", "20,-1")
    windows = np.lib.stride_tricks.sliding_window_view(array, 30, axis=0)[::10]
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), windows.max(axis=-1))
    status = json.loads(run("status", "y.npy", "--json"))
    assert (status["unit"], status["total"], status["fraction"]) == ("blocks", 5, 1)
    run(*arguments, "--chunks", "20,-1")
    assert "to begin anew" in run(*arguments[:-1], "min", "--chunks", "20,-1", code=1)
    assert "is not in the range" in run(*arguments, "--workers", "-1", code=2)


def test_who_stops_a_window_is_told_how_it_goes_on(run, ramp, monkeypatch):
    def interrupted(*_arguments, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr("mmchunks.filling.storing.to_npy", interrupted)
    assert "the same command goes on" in run("window", ramp[0], "y.npy", "--size", "3", code=1)


def test_bench_times_every_way(run, ramp):
    rates = json.loads(run("bench", ramp[0], "--rounds", "1", "--json"))
    assert set(rates) == {"auto", "mmap", "pread", "direct"}
    assert all(rate > 0 for states in rates.values() for rate in states.values())
    assert "cold GB/s" in run("bench", ramp[0], "--rounds", "1")
