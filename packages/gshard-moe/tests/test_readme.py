"""The examples of the README run as they stand."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

README = pathlib.Path(__file__).parents[1] / "README.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.S | re.M)
# On eight devices what enters a mesh of its own, on one all others: two processes, since starting
# one takes longer than most examples.
ON_EIGHT = [example for example in EXAMPLES if "make_mesh" in example]
ON_ONE = [example for example in EXAMPLES if "make_mesh" not in example]
RUNNER = """
import contextlib, io, json, sys
printed = []
for example in json.load(sys.stdin):
    with contextlib.redirect_stdout(io.StringIO()) as text:
        exec(compile(example, example.strip(), "exec"), {"__name__": "__main__"})
    printed.append(text.getvalue().splitlines())
print(json.dumps(printed))
"""


@pytest.mark.parametrize(("devices", "examples"), [(1, ON_ONE), (8, ON_EIGHT)], ids=["1", "8"])
def test_examples_print_what_stands_behind_them(devices, examples, tmp_path):
    environment = os.environ | {
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", RUNNER],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        input=json.dumps(examples),
    )
    assert done.returncode == 0, done.stderr
    shown = [re.findall(r"print\(.*\)  # (.*)$", example, re.M) for example in examples]
    assert json.loads(done.stdout) == shown


def test_there_are_examples():
    assert ON_ONE
    assert ON_EIGHT
