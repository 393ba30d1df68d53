"""Run a module of tests again under dask's newer array engine, which must be chosen at import."""

import os
import subprocess
import sys


def assert_passes_with_newer_engine(module):
    """Run the tests of the file `module` in a process of its own."""
    out = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n0", module],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "DASK_ARRAY__QUERY_PLANNING": "true"},
    )
    assert out.returncode == 0, out.stdout
    assert " passed" in out.stdout
