"""One grammar: what one public function takes, its siblings take, and in the same words."""

import contextlib
import dataclasses
import functools
import inspect
import json
import os
import re
from pathlib import Path
from types import SimpleNamespace

import dask.array as da
import numpy as np
import pytest

import mmchunks as mm
from mmchunks.errors import MMChunksError
from mmchunks.writing import locks
from mmchunks.writing.locks import Owner

READERS = {
    "open_npy": mm.open_npy,
    "open_raw": lambda file: mm.open_raw(file, "<f8", (12,), offset=128),
    "plan": mm.plan,
    "load": mm.load,
    "load_raw": lambda file: mm.load_raw(file, "<f8", offset=128),
    "from_npy": mm.from_npy,
    "from_raw": lambda file: mm.from_raw(file, "<f8", offset=128),
    "from_npy_stack": lambda file: mm.from_npy_stack([file, file]),
    "from_npy_stack of one": mm.from_npy_stack,
    "sliding_window": lambda file: mm.sliding_window(file, 2),
    "open_target": mm.open_target,
}
JOURNALLED = {
    "status": mm.status,
    "verify": mm.verify,
    "sweep": lambda file: mm.sweep(pow, [(2, 3), (3, 2)], file),
    "to_npy": lambda file: mm.to_npy(da.ones(3), file, overwrite=True),
    "create_npy": lambda file: mm.create_npy(file, 3, "u1", overwrite=True),
}


@pytest.fixture
def saved(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(12.0))
    return tmp_path / "x.npy"


@pytest.fixture
def swept(tmp_path):
    mm.sweep(pow, [(2, 3), (3, 2)], tmp_path / "x.npy")
    return tmp_path / "x.npy"


SPELLINGS = {"str": str, "Path": Path, "Source": mm.open_npy, "Target": mm.open_target}


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("function", READERS)
def test_every_reader_takes_whatever_names_a_file(saved, function, spelling):
    READERS[function](SPELLINGS[spelling](saved))


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("function", JOURNALLED)
def test_whatever_knows_a_journal_takes_whatever_names_a_file(swept, function, spelling):
    JOURNALLED[function](SPELLINGS[spelling](swept))


@pytest.mark.parametrize("file", [3, None, b"x.npy", 2.5, {1, 2}], ids=repr)
@pytest.mark.parametrize("function", [*READERS, *JOURNALLED])
def test_what_names_no_file_is_refused_in_our_words(function, file):
    call = (READERS | JOURNALLED)[function]
    with pytest.raises(
        (TypeError, MMChunksError), match=r"is no file; pass a path|pass a path, a Source"
    ):
        call(file)


def test_a_source_that_is_read_is_the_file_that_was_opened(saved):
    source, target = mm.open_npy(saved), mm.open_target(saved)
    np.save(saved, np.zeros(12))
    for read in (
        mm.load,
        lambda s: mm.from_npy(s).compute(),
        lambda s: mm.sliding_window(s, 2).compute(),
    ):
        with pytest.raises(mm.StaleFileError):
            read(source)
    saved.unlink()
    np.save(saved, np.zeros(24))
    with pytest.raises(mm.StaleFileError):
        mm.load(target)


CHUNKED = {
    "plan": mm.plan,
    "from_npy": mm.from_npy,
    "sliding_window": lambda file, chunks: mm.sliding_window(file, 1, chunks=chunks),
    "sweep": lambda file, chunks: mm.sweep(
        np.sqrt, [(i,) for i in range(12)], f"{file}.out", chunks=chunks
    ),
}


@pytest.mark.parametrize(
    "chunks", ["-5 MiB", "", "0", "much", 0, -2, 2.5, {5: 1}, (4, 4), {1, 2}], ids=repr
)
@pytest.mark.parametrize("function", CHUNKED)
def test_what_is_no_chunks_is_refused_by_everybody(saved, function, chunks):
    with pytest.raises(mm.PlanError):
        CHUNKED[function](saved, chunks)


@pytest.mark.parametrize(
    "chunks", ["auto", "32 B", 5, -1, None, (4,), {0: 4}, (4, 4, 4), np.int64(3)], ids=repr
)
@pytest.mark.parametrize("function", CHUNKED)
def test_what_is_chunks_is_taken_by_everybody(saved, function, chunks):
    CHUNKED[function](saved, chunks)


@pytest.mark.parametrize("align", ["auto", "page", 4096, "4 KiB", np.int64(4096)], ids=repr)
def test_align_means_the_same_to_a_plan_and_to_a_new_file(tmp_path, align):
    target = mm.create_npy(tmp_path / "out.npy", (3000, 100), "f4", align=align)
    assert target.layout.offset % 4096 == 0
    assert mm.plan(target, align=align).alignment.outcome == "aligned"


def test_no_alignment_is_what_numpy_does(tmp_path):
    assert mm.create_npy(tmp_path / "out.npy", 3, "f4", align=None).layout.offset == 128


@pytest.mark.parametrize("align", [2.5, 0, -1, "much", True, {1, 2}], ids=repr)
def test_what_is_no_alignment_is_refused_by_everybody(saved, align):
    for call in (
        lambda: mm.plan(saved, align=align),
        lambda: mm.from_npy(saved, align=align),
        lambda: mm.create_npy(f"{saved}.out", 3, "f4", align=align),
    ):
        with pytest.raises(mm.PlanError):
            call()
    assert not os.path.exists(f"{saved}.out")


def test_a_part_is_what_the_job_array_says(saved, monkeypatch):
    monkeypatch.setenv("SGE_TASK_ID", "2")
    monkeypatch.setenv("SGE_TASK_FIRST", "1")
    monkeypatch.setenv("SGE_TASK_LAST", "3")
    monkeypatch.setenv("SGE_TASK_STEPSIZE", "1")
    plan = mm.plan(saved, 2)
    assert plan.part("auto") == plan.part(1, 3) == plan.part((1, 3))
    swept = functools.partial(mm.sweep, np.sqrt, [(i,) for i in range(12)], f"{saved}.out")
    assert swept(part="auto").done == 4
    assert swept(part=(1, 3)).skipped == 4
    with pytest.raises(mm.PlanError, match="two whole numbers"):
        plan.part(0, 2.0)


def test_the_same_option_has_the_same_default_everywhere():
    defaults = {}
    for name in mm.__all__:
        if inspect.isfunction(function := getattr(mm, name)):
            for parameter in inspect.signature(function).parameters.values():
                if parameter.default is not parameter.empty:
                    defaults.setdefault(parameter.name, {})[name] = parameter.default
    differing = {
        option: found
        for option, found in defaults.items()
        if len(set(map(repr, found.values()))) > 1
    }
    assert differing == {}


def test_whoever_is_told_to_force_can_be_forced(swept, monkeypatch):
    # Elsewhere than on a disk of this host only the card says who drives.
    monkeypatch.setattr(locks, "mount_of", lambda _: SimpleNamespace(local=False))
    sentence = re.compile(r"pass force=True")
    calls = {
        "sweep": lambda **options: mm.sweep(pow, [(2, 3), (3, 2)], swept, **options),
        "to_npy": lambda **options: mm.to_npy(da.ones(3), swept, overwrite=True, **options),
        "create_npy": lambda **options: mm.create_npy(swept, 3, "u1", overwrite=True, **options),
        "verify": lambda **options: mm.verify(swept, forget=True, **options),
    }
    np.load(swept, mmap_mode="r+")[0] = 9  # so that there is something to forget
    card = Path(f"{swept}.mmchunks/driver.json")
    text = json.dumps(dataclasses.asdict(dataclasses.replace(Owner.here(), host="elsewhere")))
    for name, call in calls.items():
        card.parent.mkdir(exist_ok=True)
        card.write_text(text)
        with pytest.raises(mm.JournalError, match=sentence):
            call()
        assert card.exists(), name
    for name in ("verify", "sweep", "create_npy"):
        with contextlib.suppress(FileNotFoundError):
            card.write_text(text)
        calls[name](force=True)
