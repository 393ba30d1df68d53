"""Use the public face as a typed program would; mypy reads this, nobody runs it."""

from pathlib import Path
from typing import assert_type

import mmchunks as mm

source = mm.open_npy(Path("x.npy"))
assert_type(source, mm.Source)
assert_type(source.shape, tuple[int, ...])
assert_type(source.nbytes, int)

plan = mm.plan(source, "64 MiB", align="page", halo={0: (0, 3)})
assert_type(plan, mm.Plan)
assert_type(plan[0], mm.Chunk)
assert_type(plan.part(0, 4), mm.Plan)
assert_type(plan.explain(), str)
assert_type(plan.chunks, tuple[tuple[int, ...], ...])
assert_type(mm.open_raw("x.bin", "<f4", (10, -1), offset=16, order="F"), mm.Source)
