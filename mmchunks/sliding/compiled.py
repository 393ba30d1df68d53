# mypy: disable-error-code="no-untyped-def, no-untyped-call"
# ruff: noqa: ARG001
# numba finds the types of what it compiles, and binds the arguments of intrinsics
"""How fast can windows be summed? As `sums` sums them, compiled by numba.

Importing this module imports numba, which takes a second: `sums` does so for the first large
block. Every addition is made in the order in which `sums` and `folds` make it, so the bits are
the same with and without numba; what is gained is that no array is made on the way, and that the
16 sums of a unit, which do not wait for each other, are made side by side. A running sum always
waits for its last addition.

LLVM does not find out by itself that some units fit in vectors that are halved and doubled without
ever being stored; nor may it assume that rows of columns do not overlap. So the additions of a unit
are written as LLVM's own instructions on vectors, in the first half of this module; it makes of
them what the processor has. They stay in this file because numba keeps what it has compiled until
*this* file changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

if TYPE_CHECKING:
    from collections.abc import Callable

    from mmchunks.files.layout import Block

__all__ = ["run_sums", "window_sums"]

UNIT = 16  # as in `sums`
TILE = 512  # elements that short windows are summed of at a time, within the first-level cache
BATCH = 4096  # units of elements that long windows are summed of at a time, within the second
_SOON = 1024  # elements; how far ahead of its additions memory is asked for
_LINE = 64  # bytes that memory brings at a time
_INDEX = ir.IntType(32)

_F = TypeVar("_F", bound="Callable[..., object]")


def _jit(function: _F) -> _F:
    # Without fastmath, which would let LLVM add in any order, and so to other bits.
    try:
        return numba.njit(function, nogil=True, error_model="numpy", cache=True)  # type: ignore[no-any-return]
    except RuntimeError:  # neither the package nor the home directory can be written to
        return numba.njit(function, nogil=True, error_model="numpy")  # type: ignore[no-any-return]


def window_sums(x: Block, length: int, origin: int, divisor: int = 1) -> Block:
    """Sum every window of `length` rows, along the middle axis.

    Parameters
    ----------
    x : numpy.ndarray (outer, rows, inner)
        Elements, float32 or float64.
    length : int
        Rows of a window.
    origin : int
        Index of the first row in the whole array.
    divisor : int
        What each sum is divided by.

    Returns
    -------
    numpy.ndarray (outer, rows - length + 1, inner)
        A new array.
    """
    x = np.ascontiguousarray(x)
    outer, rows, inner = x.shape
    sums = np.empty((outer, rows - length + 1, inner), x.dtype)
    flat, flat_sums = x.reshape(outer, -1), sums.reshape(outer, -1)
    # The divisor is of their own type: numba, unlike numpy, divides float32 by an int as float64.
    _sum_each(flat, inner, length, origin % UNIT, x.dtype.type(divisor), flat_sums)
    return sums


def run_sums(x: Block) -> Block:
    """Sum the last axis, as numpy sums 128 elements or fewer that lie side by side.

    Parameters
    ----------
    x : numpy.ndarray (outer, runs, inner, length)
        Elements, float32 or float64; those of `inner`, not those of a run, are neighbours.

    Returns
    -------
    numpy.ndarray (outer, runs, inner)
        A new array.
    """
    outer, runs, inner, length = x.shape
    sums = np.empty((outer, runs, inner), x.dtype)
    far, next_run, _, next_row = (stride // x.itemsize for stride in x.strides)
    span = (
        1
        + sum((n - 1) * abs(stride) for n, stride in zip(x.shape, x.strides, strict=True))
        // x.itemsize
    )
    # One contiguous dimension from the first element to the last, over what lies between runs, too:
    # so each row is a contiguous slice, whatever the strides of the runs.
    flat = np.lib.stride_tricks.as_strided(x, (span,), (x.itemsize,))
    for row, row_sums in enumerate(sums):
        _sum_runs(flat[row * far :], next_run, next_row, inner, length, row_sums)
    return sums


def _split(values, size, pick):
    """Return those of `size` values that are even, and those that are odd."""
    return tuple(pick(values, values, range(first, size, 2)) for first in (0, 1))


def _totals(values, count, units, writer):
    """Add up the 16 values of each of some units, and apart from that the first `count` of them."""
    size = UNIT * units
    even, odd = _split(values, size, writer.pick)
    all_ = writer.add(even, odd)
    first = writer.begin(count, all_, even)
    size //= 2
    while size > units:
        all_, first = (writer.add(*_split(sums, size, writer.pick)) for sums in (all_, first))
        size //= 2
    return all_, first


def _windows(before, interior, behind, few, units, writer):
    """Sum the 16 windows of each of some units.

    `before` and `behind` are 16 values a unit: those up to the last one before the interior, and
    those behind the first window. The others are one value a unit: what of the interior is not
    whole units, and the sum of those that are.
    """
    levels, size = [], UNIT * units
    while size > units:
        even, odd = _split(before, size, writer.pick)
        even_behind, odd_behind = _split(behind, size, writer.pick)
        levels.append((odd, even_behind))  # those that touch what a half has in common
        before, behind = writer.add(even, odd), writer.add(even_behind, odd_behind)
        size //= 2
    sums = interior
    for sides in reversed(levels):
        halves = [writer.add(sums, side) for side in sides]
        # Last, as in `unit_sums`, but before the halves are woven into each other: what is spread
        # over half of the lanes then serves both.
        if sides is levels[0]:
            few = writer.pick(few, few, [k // (UNIT // 2) for k in range(size)])
            halves = [writer.add(half, few) for half in halves]
        sums = writer.pick(*halves, [k // 2 + k % 2 * size for k in range(2 * size)])
        size *= 2
    return sums


class _Lanes:
    """Writes instructions for values that are lanes of one vector, neighbours in an array."""

    def __init__(self, context, builder, kind):
        self._context = context
        self._builder = builder
        self._kind = kind

    def load(self, array, index, lanes):
        loaded = self._builder.load(self._point(array, index, lanes))
        # Vectors begin at any element; by itself LLVM takes them to lie on multiples of their size.
        loaded.align = self._kind.dtype.bitwidth // 8
        return loaded

    def store(self, vector, array, index):
        stored = self._builder.store(vector, self._point(array, index, vector.type.count))
        stored.align = self._kind.dtype.bitwidth // 8

    def prefetch(self, array, index, lanes):
        """Ask for elements that are wanted soon; they need not be there.

        Adding up waits for memory more than for anything else, and what the processor fetches by
        itself ends with a page.
        """
        builder, byte, number = self._builder, ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        ask = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        for lane in range(0, lanes, _filling(_LINE)(self._kind)):
            start = self._point(array, builder.add(index, index.type(lane)), 1)
            # to be read (0), into all caches (3), data (1)
            builder.call(ask, [builder.bitcast(start, byte), number(0), number(3), number(1)])

    def _point(self, array, index, lanes):
        data = self._context.make_array(self._kind)(self._context, self._builder, array).data
        vector = ir.VectorType(self._context.get_data_type(self._kind.dtype), lanes)
        return self._builder.bitcast(self._builder.gep(data, [index]), vector.as_pointer())

    def add(self, a, b):
        return self._builder.fadd(a, b)

    def divide(self, vector, divisor):
        return self._builder.fdiv(vector, self._all(divisor, vector.type.count))

    def _all(self, value, lanes):
        empty = ir.Constant(ir.VectorType(value.type, 1), ir.Undefined)
        one = self._builder.insert_element(empty, value, _INDEX(0))
        return self.pick(one, one, [0] * lanes)

    def pick(self, a, b, items):
        """Pick lanes of `a`, and of `b` where an item is no lane of `a`."""
        mask = ir.Constant(ir.VectorType(_INDEX, len(items)), list(items))
        return self._builder.shuffle_vector(a, b, mask)

    def begin(self, count, pairs, even):
        """Keep what of pairs of 16 values the first `count` values are; adding the rest is void."""
        builder, lanes = self._builder, pairs.type.count
        numbers = ir.Constant(ir.VectorType(_INDEX, lanes), [k % (UNIT // 2) for k in range(lanes)])
        # -0.0, because adding 0.0 would make 0.0 of a sum that is -0.0.
        nothing = ir.Constant(pairs.type, [-0.0] * lanes)
        whole, begun = _halves(builder, builder.trunc(count, _INDEX))
        halves = builder.select(self._below(numbers, begun), even, nothing)
        return builder.select(self._below(numbers, whole), pairs, halves)

    def _below(self, numbers, limit):
        return self._builder.icmp_signed("<", numbers, self._all(limit, numbers.type.count))


class _Rows:
    """Writes instructions for values that are rows, each a vector of as many columns."""

    def __init__(self, context, builder, kind, columns, stride):
        self._lanes = _Lanes(context, builder, kind)
        self._builder = builder
        self._columns = columns
        self._stride = stride

    def load(self, array, index, rows):
        return [self._lanes.load(array, row, self._columns) for row in self._from(index, rows)]

    def store(self, vectors, array, index):
        for vector, row in zip(vectors, self._from(index, len(vectors)), strict=True):
            self._lanes.store(vector, array, row)

    def _from(self, index, rows):
        for row in range(rows):
            yield index
            if row + 1 < rows:
                index = self._builder.add(index, self._stride)

    def add(self, a, b):
        return [self._builder.fadd(x, y) for x, y in zip(a, b, strict=True)]

    def divide(self, vectors, divisor):
        return [self._lanes.divide(vector, divisor) for vector in vectors]

    def pick(self, a, b, items):
        both = [*a, *b]
        return [both[item] for item in items]

    def begin(self, count, pairs, even):
        builder = self._builder
        nothing = ir.Constant(even[0].type, [-0.0] * self._columns)
        whole, begun = _halves(builder, count)
        found = []
        for k, (pair, half) in enumerate(zip(pairs, even, strict=True)):
            number = count.type(k)
            some = builder.select(builder.icmp_signed("<", number, begun), half, nothing)
            found.append(builder.select(builder.icmp_signed("<", number, whole), pair, some))
        return found


def _halves(builder, count):
    """Tell how many pairs are whole in `count` values, and how many have begun."""
    one = count.type(1)
    return builder.ashr(count, one), builder.ashr(builder.add(count, one), one)


def _functions(units, columns):
    """Make two functions, for so many units or for one unit of so many columns.

    Arrays are contiguous, of one type, and have one dimension; `i`, `j`, `k` are indices.

    Returns
    -------
    add_up : ``add_up(x, i, stride, count, totals, first, k)``
        Store sums of units of elements, which begin at ``x[i]``, in ``totals[k]``, and those of
        their first `count` elements in ``first[k]``.
    sum_windows : ``sum_windows(x, before, behind, stride, interior, few, i, divisor, sums, k)``
        Store the sums of the windows of units, as `_windows` makes them, in ``sums[k]``; dividing
        them before they are stored costs next to nothing.
    """

    def writer_of(context, builder, kind, stride):
        if columns is None:
            return _Lanes(context, builder, kind), units(kind)
        return _Rows(context, builder, kind, columns(kind), stride), 1

    @intrinsic
    def add_up(_, x, i, stride, count, totals, first, k):
        def write(context, builder, signature, arguments):
            x, i, stride, count, totals, first, k = arguments
            writer, many = writer_of(context, builder, signature.args[0], stride)
            if columns is None:  # one column waits for memory
                writer.prefetch(x, builder.add(i, i.type(_SOON)), UNIT * many)
            values = writer.load(x, i, UNIT * many)
            for sums, array in zip(
                _totals(values, count, many, writer), (totals, first), strict=True
            ):
                writer.store(sums, array, k)
            return context.get_dummy_value()

        index = types.intp
        return types.none(x, index, index, index, x, x, index), write

    @intrinsic
    def sum_windows(_, x, before, behind, stride, interior, few, i, divisor, sums, k):
        def write(context, builder, signature, arguments):
            x, before, behind, stride, interior, few, i, divisor, sums, k = arguments
            writer, many = writer_of(context, builder, signature.args[0], stride)
            if columns is None:  # what the next batch is made of
                later = builder.add(behind, behind.type(BATCH * UNIT))
                writer.prefetch(x, later, UNIT * many)
            before, behind = (writer.load(x, start, UNIT * many) for start in (before, behind))
            interior, few = (writer.load(shared, i, many) for shared in (interior, few))
            found = _windows(before, interior, behind, few, many, writer)
            divides = builder.fcmp_ordered("!=", divisor, divisor.type(1))
            with builder.if_else(divides) as (divided, plain):
                with divided:
                    writer.store(writer.divide(found, divisor), sums, k)
                with plain:
                    writer.store(found, sums, k)
            return context.get_dummy_value()

        index = types.intp
        of = x.dtype
        return types.none(x, index, index, index, x, x, index, of, x, index), write

    return add_up, sum_windows


def _one(_kind):
    return 1


def _filling(nbytes):
    """Tell how many elements of a type fill so many bytes."""
    return lambda kind: int(8 * nbytes // kind.dtype.bitwidth)


def _at_a_time(count):
    """Make a function of an array that returns `count` of its type."""

    @intrinsic
    def at_a_time(_, x):
        def write(context, _builder, signature, _arguments):
            return context.get_constant(types.intp, count(signature.args[0]))

        return types.intp(x), write

    return at_a_time


# As many units as were fastest: of few, the last pairs leave most of a vector empty; of more, the
# values do not stay in registers. A vector of columns is a line of the cache.
_TOTALS, _WINDOWS, _COLUMNS = _filling(64), _filling(32), _filling(_LINE)
_totals_at_a_time, _windows_at_a_time = _at_a_time(_TOTALS), _at_a_time(_WINDOWS)
_columns_at_a_time = _at_a_time(_COLUMNS)
_add_up_units, _ = _functions(_TOTALS, None)
_, _windows_of_units = _functions(_WINDOWS, None)
_add_up_unit, _windows_of_unit = _functions(_one, None)
_add_up_columns, _windows_of_columns = _functions(None, _COLUMNS)
_add_up_column, _windows_of_column = _functions(None, _one)


@_jit
def _sum_each(x, inner, length, skip, divisor, sums):
    """Sum every window of each row of `x`. What memory that takes is the same for all of them."""
    if length < UNIT:
        space = _space(length, inner, x.dtype)
        for outer in range(len(x)):
            _sum_short(x[outer], inner, length, divisor, space, sums[outer])
        return
    starting = (skip + sums.shape[1] // inner + UNIT - 1) // UNIT  # units in which windows start
    units = (length - UNIT) // UNIT  # of the interior
    # The elements of a batch are fetched from memory once; the windows end in what was added up
    # just before. A batch that is shorter than the units in common would be for few windows. Those
    # of 16 to 31 rows have no unit in common, and of more than 4096 columns BATCH is none: so 1.
    batch = min(max(BATCH // inner, units, 1), starting)
    totals = np.empty((units + batch) * inner, x.dtype)
    firsts = np.empty(
        max(units, batch) * inner, x.dtype
    )  # for the first `units`, too, if for nobody
    few = np.full(batch * inner, -0.0, x.dtype)  # adding it changes nothing
    space, near = _space(units, inner, x.dtype), np.empty(3 * UNIT * inner, x.dtype)
    for outer in range(len(x)):
        row, row_sums = x[outer], sums[outer]
        _sum_long(row, inner, length, skip, divisor, totals, firsts, few, space, near, row_sums)


# From here on, arrays have one dimension; the next row is `inner` elements on.
@_jit
def _sum_long(x, inner, length, skip, divisor, totals, firsts, few, space, near, sums):
    """Sum windows of a unit or more, a batch of units at a time; `skip` rows of one are missing."""
    units, rest = divmod(length - UNIT, UNIT)  # the interior has one row more
    starting, batch = (skip + len(sums) // inner + UNIT - 1) // UNIT, len(few) // inner
    behind = x[(UNIT - 1 - skip) * inner :]  # the first unit is behind that of the first windows
    _add_up(behind, inner, rest + 1, totals[: units * inner], firsts)
    for start in range(0, starting, batch):
        stop = min(start + batch, starting)
        old, new = units * inner, (stop - start) * inner
        ends = behind[(units + start) * UNIT * inner :]
        _add_up(ends, inner, rest + 1, totals[old : old + new], firsts)
        if units:
            common = totals[: old + new - inner]
            _sum_short(common, inner, units, x.dtype.type(1), space, few[:new])
            if stop < starting:  # to the front, one after the other: they may overlap
                _copy(totals[new : new + old], totals[:old])
        _sum_units(x, inner, skip, length, start, stop, firsts, few, divisor, near, sums)


@_jit
def _space(length, inner, dtype):
    tile = max(TILE, 2 * length * inner)  # so that no more is halo than half of what is its own
    return np.empty((3, tile + length * inner), dtype)


@_jit
def _sum_short(x, inner, length, divisor, space, sums):
    """Sum windows by doubling, as `folds.slide` does."""
    power, spare, done = space[0], space[1], space[2]
    tile = len(done) - length * inner
    for first in range(0, len(sums), tile):
        n = min(tile, len(sums) - first)
        have = n + (length - 1) * inner
        runs, result = x[first : first + have], sums[first : first + n]
        rows, covered = 1, 0
        while True:
            if length & rows:
                # All but the last additions stay in `space`, which the first-level cache holds.
                last = 2 * rows > length
                out = result if last else done[:n]
                if covered and last:
                    _add(done, runs[covered * inner :], out)
                elif covered:
                    _add_to(out, runs[covered * inner :])
                else:
                    _copy(runs, out)
                covered += rows
            if 2 * rows > length:
                break
            have -= rows * inner
            _add(runs, runs[rows * inner :], spare[:have])
            runs = spare
            power, spare = spare, power
            rows *= 2
        if divisor != 1:
            _divide(result, divisor)


@_jit
def _add(a, b, out):
    for i in range(len(out)):
        out[i] = a[i] + b[i]


@_jit
def _add_to(out, b):  # LLVM would make no vectors of `_add` where `out` is one of the others
    for i in range(len(out)):
        out[i] = out[i] + b[i]


@_jit
def _copy(a, out):
    for i in range(len(out)):
        out[i] = a[i]


@_jit
def _copy_part(x, start, out):
    """Copy what of ``x[start : start + len(out)]`` is there, and zeros for what is not."""
    out[:] = 0
    low, high = max(0, start), min(len(x), start + len(out))
    if low < high:
        _copy(x[low:high], out[low - start : high - start])


@_jit
def _divide(out, divisor):
    for i in range(len(out)):
        out[i] = out[i] / divisor


@_jit
def _add_up(x, inner, count, totals, firsts):
    """Sum each unit, and its first `count` rows; the last unit may be cut off behind these."""
    unit = UNIT * inner
    done = 0
    # One call, in two turns at most: a second one would be compiled once more, vectors and all.
    while done < len(totals):
        whole = min(len(totals), len(x) // unit * inner)
        if done < whole:
            source, stop = x, whole
        else:
            source, stop = np.empty(unit, x.dtype), len(totals)
            _copy_part(x, whole * UNIT, source)
        _add_up_whole(source, inner, count, totals[done:stop], firsts[done:stop])
        done = stop


@_jit
def _add_up_whole(x, inner, count, totals, firsts):
    if inner == 1:
        many = len(totals) - len(totals) % _totals_at_a_time(x)
        for unit in range(0, many, _totals_at_a_time(x)):
            _add_up_units(x, unit * UNIT, 1, count, totals, firsts, unit)
        for unit in range(many, len(totals)):
            _add_up_unit(x, unit * UNIT, 1, count, totals, firsts, unit)
        return
    wide = inner - inner % _columns_at_a_time(x)
    for row in range(0, len(totals), inner):
        for i in range(row, row + wide, _columns_at_a_time(x)):
            at = row * UNIT + i - row
            _add_up_columns(x, at, inner, count, totals, firsts, i)
        for i in range(row + wide, row + inner):
            at = row * UNIT + i - row
            _add_up_column(x, at, inner, count, totals, firsts, i)


@_jit
def _sum_units(x, inner, skip, length, start, stop, interior, few, divisor, near, sums):
    """Sum the windows that start in the units from `start` to `stop`."""
    windows, size = len(sums) // inner, UNIT * inner
    high = min(stop, (skip + windows - 1) // UNIT)
    unit = start
    # As in `_add_up`, one call for what is whole and for what is not.
    while unit < stop:
        row = unit * UNIT - skip
        whole = 1 <= unit < high  # there is no row before unit 0
        if whole:
            last, before, behind = high, (row - 1) * inner, (row + length) * inner
            source, out = x, sums[row * inner : (high * UNIT - skip) * inner]
        else:  # some of these windows, or of the elements around them, are not there
            last, before, behind = unit + 1, 0, size
            source, out = near, near[2 * size :]
            _copy_part(x, (row - 1) * inner, near[:size])
            _copy_part(x, (row + length) * inner, near[size : 2 * size])
        of_units = slice((unit - start) * inner, (last - start) * inner)
        _sum_whole(source, before, behind, inner, interior[of_units], few[of_units], divisor, out)
        if not whole:
            first, end = max(0, -row) * inner, min(UNIT, windows - row) * inner
            _copy(out[first:end], sums[row * inner + first : row * inner + end])
        unit = last


@_jit
def _sum_whole(x, before, behind, inner, interior, few, divisor, sums):
    """Sum the windows of units where they and the elements around are there."""
    if inner == 1:
        many = len(few) - len(few) % _windows_at_a_time(x)
        for unit in range(0, many, _windows_at_a_time(x)):
            left, right, at = before + unit * UNIT, behind + unit * UNIT, unit * UNIT
            _windows_of_units(x, left, right, 1, interior, few, unit, divisor, sums, at)
        for unit in range(many, len(few)):
            left, right, at = before + unit * UNIT, behind + unit * UNIT, unit * UNIT
            _windows_of_unit(x, left, right, 1, interior, few, unit, divisor, sums, at)
        return
    wide = inner - inner % _columns_at_a_time(x)
    for row in range(0, len(few), inner):
        for i in range(row, row + wide, _columns_at_a_time(x)):
            at = row * UNIT + i - row
            left, right = before + at, behind + at
            _windows_of_columns(x, left, right, inner, interior, few, i, divisor, sums, at)
        for i in range(row + wide, row + inner):
            at = row * UNIT + i - row
            left, right = before + at, behind + at
            _windows_of_column(x, left, right, inner, interior, few, i, divisor, sums, at)


@_jit
def _sum_runs(x, next_run, next_row, inner, length, sums):
    """Sum runs of rows of `inner` columns, eight rows apart from each other, then these eight."""
    partial = np.empty((8, inner), x.dtype)
    for run in range(len(sums)):
        rows, total = x[run * next_run :], sums[run]
        if length < 8:  # numpy adds so few one by one
            rest = 1
            _copy(rows[:inner], total)
        else:
            rest = length - length % 8
            for k in range(8):
                _copy(rows[k * next_row : k * next_row + inner], partial[k])
            for row in range(8, rest):
                _add_to(partial[row % 8], rows[row * next_row : row * next_row + inner])
            _add_eight(partial, total)
        for row in range(rest, length):
            _add_to(total, rows[row * next_row : row * next_row + inner])


@_jit
def _add_eight(a, out):
    for i in range(len(out)):
        out[i] = ((a[0, i] + a[1, i]) + (a[2, i] + a[3, i])) + (
            (a[4, i] + a[5, i]) + (a[6, i] + a[7, i])
        )
