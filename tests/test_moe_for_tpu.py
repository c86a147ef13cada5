"""What the TPU compiler makes of the layer's gradient at the paper's sizes, on 128 v3 cores.

In a process of its own: the test suite turns off the compiler's optimisations.
"""

import collections
import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
SLOTS = 2 * 2048 * 1024 * 2  # two bfloat16 copies of each of 2048 tokens of width 1024
ROUTER = 1024 * 128 * 4
EXCHANGES = 4 * [SLOTS]


@pytest.fixture(scope="module")
def found():
    """The bytes of each kind of collective on one core, by program."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "moe_on_tpu.py")],
        capture_output=True,
        text=True,
        env={
            "PATH": os.environ["PATH"],
            "HOME": os.environ.get("HOME", "/"),
            "PYTHONPATH": str(ROOT / "tools"),
        },
    )
    assert done.returncode == 0, done.stderr[-4000:]
    programs = json.loads(done.stdout.splitlines()[-1])
    by_kind = {name: collections.defaultdict(list) for name in programs}
    for name, moved in programs.items():
        for kind, size in moved:
            by_kind[name][kind].append(size)
    return by_kind


@pytest.mark.slow
def test_four_all_to_alls_and_one_small_all_reduce(found):
    (summed,) = found["layer"].pop("all-reduce")
    assert found["layer"] == {"all-to-all": EXCHANGES}
    # The router's gradient; losses and statistics go along.
    assert 0 < summed - ROUTER < 2000


@pytest.mark.slow
def test_with_padding_its_tokens_are_counted_too_and_saved_exchanges_stay_four(found):
    program = found["padding, exchanged tokens saved"]
    # Gradients of means need the number of tokens before the router's gradient is summed.
    count, summed = program.pop("all-reduce")
    assert program == {"all-to-all": EXCHANGES}
    assert count == 4
    assert 0 < summed - ROUTER < 2000


@pytest.mark.slow
def test_rematerialised_whole_the_forward_exchanges_are_done_again(found):
    assert found["everything again"]["all-to-all"] == 6 * [SLOTS]


@pytest.mark.slow
def test_groups_over_data_alone_are_gathered_and_not_exchanged(found):
    program = found["groups over data alone"]
    assert "all-to-all" not in program
    # Slots of all groups, on each core, forward and backward: 4 times what goes round above.
    assert program["all-gather"] == 2 * [4 * SLOTS]
