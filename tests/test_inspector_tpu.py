"""The inspector on TPUs that are not there: their compiler runs, in a process of its own.

Two processes cannot use it at once, hence the lock; and its settings must be made before JAX
starts, hence the process.
"""

import fcntl
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import pytest

PROGRAM = pathlib.Path(__file__).with_name("inspected_on_tpu.py")
SETTINGS = {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v4-8",
    "TPU_WORKER_HOSTNAMES": "localhost",
}


@pytest.fixture(scope="module")
def found():
    """What the program reports, as JSON."""
    with (pathlib.Path(tempfile.gettempdir()) / "gshard-tpu-compiler.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = [sys.executable, str(PROGRAM)]
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ | SETTINGS)
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_chip_mesh_and_memory_are_those_of_the_topology(found):
    report = found["scanned"]
    assert (report["platform"], report["chip"]) == ("tpu", "TPU v3 core")
    assert report["mesh"] == {"data": 2, "expert": 4}
    assert report["memory"]["limit"] == 16 * 2**30
    assert 0 < report["memory"]["peak"] < 2**24
    assert found["chips"] == {"v3:2x2": "TPU v3 core", "v5e:2x4": "TPU v5e", "v6e:2x4": "TPU v6e"}


@pytest.mark.slow
def test_flops_of_a_scan_count_each_layer(found):
    # Six layers of two products, forward, and four backward; 256 rows over 2 devices, 512 columns
    # over 4.
    assert found["scanned"]["flops"] == 6 * 6 * 2 * (256 // 2) * 128 * (512 // 4)


@pytest.mark.slow
def test_annotations_got_what_they_asked_for(found):
    annotations = [one for one in found["scanned"]["values"] if one["role"] == "annotation"]
    assert {(one["name"], one["compiled"], one["times"], one["note"]) for one in annotations} == {
        ("split[0:data]", "P('data', None)", 6, ""),
        ("split[0:data] (gradient)", "P('data', None)", 6, ""),
    }


@pytest.mark.slow
def test_collectives_in_loops_without_a_written_trip_count(found):
    exchanges = found["scanned"]["exchanges"]
    inside = [one for one in exchanges if one["times"] == 6]
    assert {(one["kind"], tuple(one["axes"])) for one in inside} >= {("all-reduce", ("expert",))}
    assert {one["times"] for one in exchanges} == {1, 6}
    assert all(one["seconds"] > 0 and one["file"] == PROGRAM.name for one in exchanges)
    assert not [one for one in exchanges if one["surprise"]]


@pytest.mark.slow
def test_a_fused_all_reduce_scatter_is_a_reduce_scatter(found):
    (one,) = [one for one in found["scattered"]["exchanges"] if one["kind"] == "reduce-scatter"]
    assert (one["axes"], one["group"], one["shape"]) == (["expert"], 4, "bf16[256,1024]")
    assert one["cause"].startswith("x P(None, 'expert') -> split[0:expert] at inspected_on_tpu.py:")
    assert one["surprise"] == ""


@pytest.mark.slow
@pytest.mark.parametrize("topology", ["v5e:2x4", "v6e:2x4"])
def test_weights_gathered_in_each_layer_count_once_even_if_asynchronous(found, topology):
    weights = [
        (one["shape"], one["times"], one["surprise"].partition(": ")[2])
        for one in found[topology]["exchanges"]
        if one["kind"] == "all-gather" and one["axes"] == ["data"]
    ]
    used = "is split on 'data' and 'expert' but used split on 'expert' only"
    # Forward and backward.
    assert sorted(weights) == sorted(
        2 * [("bf16[1,1024,1024]", 6, f"params['{name}'] {used}") for name in ("i", "o")]
    )


@pytest.mark.slow
def test_what_does_not_fit_is_told_with_what_there_is(found):
    needed = r"HLO temporaries need [\d.]+[GT], its HBM has 15\.48G"
    assert re.fullmatch(
        r"inspect: pairs does not fit on a device of mesh data=2, expert=4 \(8 TPU v3 devices\): "
        rf"{needed}; split more of it, recompute with jax\.checkpoint, or take more devices",
        found["too large"],
    )
