"""What README shows, run as it says: the blocks of its walk, one after the other, in a script."""

import re
import subprocess
import sys
import textwrap
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_the_examples_run_one_after_the_other(tmp_path):
    _glance, *walk = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    code = "\n".join(walk)
    function = re.search(r"^def simulate.*?(?=^\S)", code, re.MULTILINE | re.DOTALL)
    assert function
    rest = code.replace(function[0], "")
    script = tmp_path / "walk.py"
    script.write_text(
        "import numpy as np\n\n"
        + function[0]
        + '\nif __name__ == "__main__":\n'
        + textwrap.indent(rest, "    ")
        + "\n    print(x.shape, y.compute().shape, z[:2].compute().shape)\n"
    )
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "(10000, 12) (6, 1457, 12) (2, 8)" in done.stdout
