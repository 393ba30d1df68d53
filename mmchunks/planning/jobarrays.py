"""Which part of the work is this process's, as a job array says it? No file is touched.

    scheduler  index                  first                 last                  step
    SLURM      SLURM_ARRAY_TASK_ID    SLURM_ARRAY_TASK_MIN  SLURM_ARRAY_TASK_MAX  SLURM_ARRAY_TASK_STEP
    SGE        SGE_TASK_ID            SGE_TASK_FIRST        SGE_TASK_LAST         SGE_TASK_STEPSIZE
    LSF        LSB_JOBINDEX           (1)                   LSB_JOBINDEX_END      LSB_JOBINDEX_STEP
    PBS Pro    PBS_ARRAY_INDEX        not said              not said              not said
    Torque     PBS_ARRAYID            not said              not said              not said

Parts count from 0: a part is ``(i, n)`` with ``0 <= i < n``.
"""

from __future__ import annotations

import operator
import os
import re
from typing import TYPE_CHECKING, TypeAlias

from mmchunks.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Part", "as_part", "parse_part"]

Part: TypeAlias = tuple[int, int]

_INDEX = {
    "SLURM_ARRAY_TASK_ID": (
        "SLURM_ARRAY_TASK_MIN",
        "SLURM_ARRAY_TASK_MAX",
        "SLURM_ARRAY_TASK_STEP",
    ),
    "SGE_TASK_ID": ("SGE_TASK_FIRST", "SGE_TASK_LAST", "SGE_TASK_STEPSIZE"),
    "LSB_JOBINDEX": ("", "LSB_JOBINDEX_END", "LSB_JOBINDEX_STEP"),
    "PBS_ARRAY_INDEX": ("", "", ""),
    "PBS_ARRAYID": ("", "", ""),
}
_NOT_AN_ARRAY = {None, "", "0", "undefined"}  # what LSF and SGE say outside an array
_PART = re.compile(r"(auto|\d+)(?:/(?:(\d+)-)?(\d+))?")


def parse_part(text: str, environ: Mapping[str, str]) -> Part:
    """Read the part that ``--part`` names.

    Parameters
    ----------
    text : str
        ``"3/100"``: part 3 of 100, counted from 0. ``"3/1-100"``: as an array whose indices run
        from 1 to 100 counts. ``"auto"``: what the job array says; ``"auto/1-100"`` where the
        scheduler tells a job its index but not the others'.
    environ : mapping of str to str
        The environment of the process.

    Returns
    -------
    (int, int)
        Which part, counted from 0, and of how many.

    Raises
    ------
    PlanError
        For a text of another form, a part that is not there, or an array that does not say enough.

    Examples
    --------
    >>> parse_part("3/100", {}), parse_part("auto/1-100", {"PBS_ARRAY_INDEX": "4"})
    ((3, 100), (3, 100))
    """
    match = _PART.fullmatch(text.strip())
    if match is None or (match[1] != "auto" and match[3] is None):
        msg = f'part is {text!r}; write "3/100", "3/1-100", "auto" or "auto/1-100"'
        raise PlanError(msg)
    index, first, last = match.groups()
    if index == "auto" and last is None:
        return _from_array(environ)
    given = _index_of(environ)[1] if index == "auto" else int(index)
    if first is None:
        return as_part((given, int(last)))
    return _in_range(given, int(first), int(last), 1)


def as_part(part: tuple[int, int] | str, environ: Mapping[str, str] = os.environ) -> Part:
    """Read which part of the work is meant.

    Parameters
    ----------
    part : (int, int) or str
        ``(i, n)``: which part, counted from 0, and of how many; or what `parse_part` reads, such as
        ``"auto"``: what the job array says that runs this process.
    environ : mapping of str to str
        Where a job array says it.

    Returns
    -------
    (int, int)
        Which part, counted from 0, and of how many.

    Raises
    ------
    PlanError
        If there is no such part, or `part` is something else.

    Examples
    --------
    >>> as_part((99, 100)), as_part("auto/1-100", {"PBS_ARRAY_INDEX": "4"})
    ((99, 100), (3, 100))
    """
    if isinstance(part, str):
        return parse_part(part, environ)
    try:
        index, count = map(operator.index, part)
    except (TypeError, ValueError):
        msg = (
            f"part is {part!r}; write (i, n): two whole numbers, which part and of how many; or "
            '"auto" in a job array'
        )
        raise PlanError(msg) from None
    if not 0 <= index < count:
        msg = f"part {index} of {count} is not there; parts count from 0 to {count - 1}"
        if index == count:
            msg += f'; an array that counts from 1 is written "auto/1-{count}"'
        raise PlanError(msg)
    return index, count


def _index_of(environ: Mapping[str, str]) -> tuple[str, int]:
    """Find the variable that holds the index, and the index."""
    for name in _INDEX:
        if environ.get(name) not in _NOT_AN_ARRAY or (name[0] in "SP" and environ.get(name) == "0"):
            return name, int(environ[name])
    msg = f'no job array is running this: none of {", ".join(_INDEX)} is set; write part "0/1"'
    raise PlanError(msg)


def _from_array(environ: Mapping[str, str]) -> Part:
    """Take everything from the variables of a job array."""
    name, index = _index_of(environ)
    first, last, step = _INDEX[name]
    if last not in environ:
        msg = (
            f"{name} tells this job's index, {index}, but nothing tells those of the whole array; "
            f'write them: "auto/1-100" or "auto/0-99"'
        )
        raise PlanError(msg)
    part = _in_range(
        index, int(environ.get(first, 1)), int(environ[last]), int(environ.get(step, 1))
    )
    count = environ.get("SLURM_ARRAY_TASK_COUNT", str(part[1]))
    if name.startswith("SLURM") and int(count) != part[1]:
        msg = (
            f"the array has {count} tasks between {environ[first]} and {environ[last]}, with gaps; "
            f'write which part this is, as "3/{count}"'
        )
        raise PlanError(msg)
    return part


def _in_range(index: int, first: int, last: int, step: int) -> Part:
    """Count the index of an array that runs from `first` to `last`, both included, from 0."""
    part, off = divmod(index - first, step)
    if off or not first <= index <= last:
        msg = f"index {index} is not in an array from {first} to {last} in steps of {step}"
        raise PlanError(msg)
    return part, (last - first) // step + 1
