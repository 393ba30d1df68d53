"""Sum windows of arrays that end, and begin, where memory ends; touching more is a crash.

    python tests/guarded_sums.py

What `mmchunks.sliding.compiled` reads and writes is checked by nobody else: its vectors know no bounds.
"""

import ctypes
import mmap

import numpy as np

from mmchunks.sliding import compiled

PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)


def guarded(shape, dtype, *, at_end):
    """Make an array of noise with a page that nobody may touch right behind, or before, it."""
    nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    pages = -(-nbytes // PAGE)
    memory = mmap.mmap(-1, (pages + 2) * PAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for guard in (start, start + (pages + 1) * PAGE):
        if _libc.mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(PAGE), 0):  # PROT_NONE
            raise OSError(ctypes.get_errno(), "mprotect")
    offset = PAGE + (pages * PAGE - nbytes if at_end else 0)
    x = np.frombuffer(memory, dtype, count=int(np.prod(shape)), offset=offset).reshape(shape)
    x[...] = np.random.default_rng(0).normal(size=shape)
    return x


def main():
    rng = np.random.default_rng(1)
    for case in range(1500):
        dtype = "f4" if case % 2 else "f8"
        inner = int(rng.choice([1, 1, 2, 5, 16, 17, 40, 5000]))
        length = int(rng.integers(1, 40) if case % 3 else rng.integers(1, 700))
        windows = int(rng.integers(1, 70) if case % 5 else rng.integers(1, 70_000 // inner))
        outer, origin = int(rng.integers(1, 3)), int(rng.integers(0, 16))
        at_end = bool(rng.integers(2))
        x = guarded((outer, (length + windows - 1) * inner), dtype, at_end=at_end)
        sums = guarded((outer, windows * inner), dtype, at_end=at_end)
        compiled._sum_each(x, inner, length, origin, x.dtype.type(1), sums)
        rows = x.reshape(outer, -1, inner)
        step = int(rng.integers(1, 20))
        short = min(length, 128)
        runs = np.lib.stride_tricks.as_strided(
            rows,
            (outer, (rows.shape[1] - short) // step + 1, inner, short),
            (rows.strides[0], rows.strides[1] * step, rows.strides[2], rows.strides[1]),
        )
        found = compiled.run_sums(runs)
        np.testing.assert_allclose(found, runs.sum(axis=-1), rtol=1e-3, atol=1e-3)
        wanted = np.lib.stride_tricks.sliding_window_view(rows, length, axis=1)[
            :, :: max(1, windows // 50)
        ].sum(axis=-1)
        got = sums.reshape(outer, windows, inner)[:, :: max(1, windows // 50)]
        np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-3)
    print("no element was touched that is not there")


if __name__ == "__main__":
    main()
