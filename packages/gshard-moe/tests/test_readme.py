"""The examples of the README run as they stand."""

import pathlib
import re
import subprocess
import sys

import pytest

README = pathlib.Path(__file__).parents[1] / "README.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.S | re.M)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.splitlines()[0])
def test_example(example, tmp_path):
    command = [sys.executable, "-W", "error", "-c", example]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    # What a line prints stands behind it in a comment.
    shown = re.findall(r"print\(.*\)  # (.*)$", example, re.M)
    assert done.stdout.splitlines() == shown


def test_there_are_examples():
    assert EXAMPLES
