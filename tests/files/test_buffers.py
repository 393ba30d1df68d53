"""Buffers are counted: lent, given back, bounded."""

import gc
import os
import threading

import numpy as np
import pytest

from mmchunks.files import blocks

MIB = 1 << 20


@pytest.fixture
def pool(monkeypatch):
    pool = blocks.Pool(idle_nbytes=8 * MIB)
    monkeypatch.setattr(blocks, "_pool", pool)
    return pool


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["u1", ">f8", "<M8[ns]", "V5", [("a", "u1"), ("b", "f4", 2)]])
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (300, 7, 500)])
def test_a_block_is_as_numpy_makes_it(pool, shape, dtype, order):
    block, judge = blocks.take(shape, np.dtype(dtype), order), np.empty(shape, dtype, order)
    assert (block.shape, block.dtype) == (judge.shape, judge.dtype)
    assert block.strides == judge.strides or not block.size
    assert block.flags.writeable
    block[...] = np.zeros((), dtype)


def test_a_sub_array_dtype_adds_axes(pool):
    assert blocks.take((3,), np.dtype(("f4", (2,))), "C").shape == (3, 2)


def test_a_buffer_comes_back_when_its_last_view_dies(pool):
    block = blocks.take((2 * MIB,), np.dtype("u1"), "C")
    address, view = block.ctypes.data, block.reshape(2, -1)[1, ::2]
    del block
    assert pool.idle_nbytes == 0
    del view
    gc.collect()
    assert pool.idle_nbytes == 2 * MIB
    again = blocks.take((2 * MIB // 8 - 5,), np.dtype("f8"), "C")
    assert again.ctypes.data == address
    assert address % 4096 == 0
    assert pool.idle_nbytes == 0


def test_two_blocks_never_share_memory(pool):
    taken = [blocks.take((2 * MIB,), np.dtype("u1"), "C") for _ in range(4)]
    for number, block in enumerate(taken):
        block[:] = number
    assert [set(np.unique(block)) for block in taken] == [{0}, {1}, {2}, {3}]


def test_what_lies_idle_is_bounded(pool):
    taken = [blocks.take((2 * MIB,), np.dtype("u1"), "C") for _ in range(9)]
    del taken
    assert pool.idle_nbytes == 8 * MIB
    blocks.take((10 * MIB,), np.dtype("u1"), "C")  # more than may lie idle at all
    assert pool.idle_nbytes <= 8 * MIB


def test_small_blocks_are_not_pooled(pool):
    blocks.take((1000,), np.dtype("u1"), "C")
    assert pool.idle_nbytes == 0


def test_a_block_that_dies_while_the_pool_is_busy_is_freed_not_waited_for(pool):
    block = blocks.take((2 * MIB,), np.dtype("u1"), "C")
    with pool._lock:
        del block  # would hang here for good
    assert pool.idle_nbytes == 0


def test_threads_share_the_pool_without_sharing_buffers(pool):
    wrong = []

    def work(number):
        for _ in range(200):
            block = blocks.take((2 * MIB,), np.dtype("u1"), "C")
            block[::4096] = number
            if set(np.unique(block[::4096])) != {number}:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert pool.idle_nbytes <= 8 * MIB


def test_a_forked_child_begins_with_its_own_pool(pool):
    block = blocks.take((2 * MIB,), np.dtype("u1"), "C")
    block[:] = 1
    with pool._lock:  # as if another thread held it in the moment of the fork
        child = os.fork()
        if not child:
            mine = blocks.take((2 * MIB,), np.dtype("u1"), "C")
            mine[:] = 2
            os._exit(0 if block[0] == 1 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert block[0] == 1
