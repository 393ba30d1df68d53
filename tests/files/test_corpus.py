"""Real files, written by many programs: read as np.load reads them, to the last byte.

The files are not part of the project. They are looked for beside the repository, and these tests
are skipped without them; test_npy holds every oddity they have.
"""

import ast
import csv
import hashlib
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from mmchunks.errors import HeaderError
from mmchunks.reading.opening import open_npy, open_raw

# NumPy reads these on Python 3.11 only; see the head of mmchunks.files.npy.
SPACES_AFTER_NEWLINE = {"npyjs__out.npy", "npyjs__out-2.npy"}


def corpus():
    """The folder of files, from the repository or a worktree beside it; None where absent."""
    root = Path(__file__).resolve().parents[2]
    folders = (parent / "shared" / "corpus" for parent in (root.parent, root.parent.parent))
    return next((folder for folder in folders if (folder / "MANIFEST.tsv").exists()), None)


def rows():
    if corpus() is None:
        skip = pytest.mark.skip(reason="the corpus is not beside this repository")
        return [pytest.param(None, id="corpus", marks=skip)]
    with (corpus() / "MANIFEST.tsv").open(newline="") as file:
        return [
            pytest.param(row, id=row["file name"])
            for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        ]


def sha256(array):
    return hashlib.sha256(array.tobytes()).hexdigest()


@pytest.mark.parametrize("row", rows())
def test_a_real_file_is_read_as_numpy_reads_it_or_refused_as_numpy_refuses_it(row):
    path = corpus() / row["file name"]
    if not row["numpy verdict"].startswith("ok"):
        with pytest.raises(HeaderError, match=f"^{path}: ") as caught:
            open_npy(path)
        assert len(str(caught.value)) < 500
        return
    source = open_npy(path)
    assert repr(source.shape) == row["shape"]
    assert source.dtype == np.lib.format.descr_to_dtype(ast.literal_eval(row["descr/dtype"]))
    assert (source.offset, source.order) == (int(row["data offset"]), row["order"])
    assert sha256(source[...]) == row["sha256 of tobytes (C order)"]
    if sys.version_info >= (3, 12) and row["file name"] in SPACES_AFTER_NEWLINE:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Python 2's headers; we read them in silence
        judge = np.load(path, allow_pickle=False)
    assert (source.shape, source.dtype) == (judge.shape, judge.dtype)
    assert sha256(source[...]) == sha256(judge)


@pytest.mark.skipif(corpus() is None, reason="the corpus is not beside this repository")
def test_a_real_raw_file_is_read_as_its_description_says():
    source = open_raw(
        corpus() / "numcodecs__astype_f_c00_encoded.00.dat", "<f4", (100, 10), order="F"
    )
    expected = "4733a847bd2fdb8e773fd652b372fdc997774141c29b02eab1f656fce7afc447"
    assert sha256(source[...]) == expected
