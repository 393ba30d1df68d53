"""Job arrays: what their variables say, and what they leave unsaid."""

import pytest

from mmchunks.errors import PlanError
from mmchunks.planning.jobarrays import as_part, parse_part


def slurm(index, first, last, step=1, count=None):
    count = (last - first) // step + 1 if count is None else count
    names = ("ID", "MIN", "MAX", "STEP", "COUNT")
    values = (index, first, last, step, count)
    return {f"SLURM_ARRAY_TASK_{n}": str(v) for n, v in zip(names, values, strict=True)}


def sge(index, first, last, step=1):
    names = ("ID", "FIRST", "LAST", "STEPSIZE")
    return {f"SGE_TASK_{n}": str(v) for n, v in zip(names, (index, first, last, step), strict=True)}


@pytest.mark.parametrize(
    ("text", "environ", "part"),
    [
        ("0/1", {}, (0, 1)),
        ("3/100", {}, (3, 100)),
        ("3/1-100", {}, (2, 100)),
        ("auto", slurm(7, 0, 9), (7, 10)),
        ("auto", slurm(0, 0, 9), (0, 10)),
        ("auto", slurm(7, 1, 10), (6, 10)),
        ("auto", slurm(9, 1, 9, step=4), (2, 3)),
        ("auto", sge(1, 1, 5), (0, 5)),
        ("auto", sge(9, 1, 10, step=2), (4, 5)),
        (
            "auto",
            {"LSB_JOBINDEX": "5", "LSB_JOBINDEX_END": "20", "LSB_JOBINDEX_STEP": "1"},
            (4, 20),
        ),
        ("auto", {"LSB_JOBINDEX": "0", "SLURM_JOB_ID": "1"} | slurm(2, 0, 3), (2, 4)),
        ("auto/100", {"PBS_ARRAY_INDEX": "0"}, (0, 100)),
        ("auto/1-100", {"PBS_ARRAY_INDEX": "100"}, (99, 100)),
        ("auto/0-99", {"PBS_ARRAYID": "99"}, (99, 100)),
    ],
)
def test_a_part_is_read_from_its_text_and_the_array(text, environ, part):
    assert parse_part(text, environ) == part


@pytest.mark.parametrize(
    ("text", "environ", "says"),
    [
        ("3", {}, 'write "3/100"'),
        ("a/b", {}, "part is 'a/b'"),
        ("100/100", {}, 'written "auto/1-100"'),
        ("0/0", {}, "part 0 of 0 is not there"),
        ("0/1-100", {}, "index 0 is not in an array from 1 to 100"),
        ("auto", {}, "no job array is running this"),
        ("auto", {"LSB_JOBINDEX": "0"}, "no job array"),
        ("auto", {"SGE_TASK_ID": "undefined"}, "no job array"),
        ("auto", {"PBS_ARRAY_INDEX": "4"}, "nothing tells those of the whole array"),
        ("auto", slurm(7, 1, 7, count=3), "3 tasks between 1 and 7, with gaps"),
        ("auto", sge(4, 1, 9, step=2), "in steps of 2"),
    ],
)
def test_what_an_array_does_not_say_is_asked_for_in_a_sentence(text, environ, says):
    with pytest.raises(PlanError) as caught:
        parse_part(text, environ)
    assert says in str(caught.value)


@pytest.mark.parametrize("scheme", [slurm, sge])
def test_the_tasks_of_an_array_are_its_parts_once_each(scheme):
    assert [parse_part("auto", scheme(i, 1, 8)) for i in range(1, 9)] == [(i, 8) for i in range(8)]


def test_a_part_counts_from_zero():
    assert as_part((0, 3)) == (0, 3)
    with pytest.raises(PlanError, match="parts count from 0 to 2"):
        as_part((-1, 3))
    for part in (3, None, (0, 2.0), (0, 1, 2)):
        with pytest.raises(PlanError, match="two whole numbers"):
            as_part(part)
