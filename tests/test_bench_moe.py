"""The benchmark of the mixture-of-experts layer: what it takes and what it writes, not how long."""

import json

import jax
import pytest

import bench_moe
import bench_moe_layers
import bench_moe_rounds
import bench_moe_tpu_maxtext


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    file = tmp_path_factory.mktemp("bench") / "moe.json"
    small = ["--points=tiny", "--rounds=1", "--rows=bare", "--peers=none", "--tpu=none"]
    bench_moe.main([*small, f"--json={file}"])
    return json.loads(file.read_text())


def test_json_has_the_agreed_keys(found):
    assert set(found) == {"points", "tpu"}
    assert found["tpu"] == {}
    point = found["points"]["tiny"]
    agreed = {"forward", "forward_backward", "temp_mb", "peers"}
    agreed |= {"experts_only_forward", "experts_only_forward_backward"}
    assert agreed <= set(point)
    assert point["peers"] == {}
    assert set(point["rows"]) == {"dense", "experts only", "layer", "bare"}


def test_dense_is_what_times_are_measured_in(found):
    dense = found["points"]["tiny"]["rows"]["dense"]
    assert (dense["forward"], dense["forward_backward"]) == (1.0, 1.0)
    assert all(row["forward"] > 0 for row in found["points"]["tiny"]["rows"].values())


def test_subjects_do_equal_work():
    point = bench_moe_layers.POINTS["tiny"]
    G, S, E, M, _ = point
    subjects = bench_moe_layers.subjects(point, "float32")
    assert subjects["dense"].x.shape == (2 * G * S, M)
    assert subjects["experts only"].x.shape == (E, 2 * G * S // E, M)
    assert {name for name in subjects if "=" in name} == {
        "dispatch=einsum",
        "dispatch=gather",
        "dispatch=sorted",
        "experts=batched",
        "experts=one_by_one",
    }


def test_points_have_the_paper_capacity():
    slots = {name: point.slots for name, point in bench_moe_layers.POINTS.items()}
    assert slots == {"A": 128, "B": 16, "C": 16, "tiny": 8}


def test_rounds_run_every_program_in_changing_order():
    ran = []
    programs = {name: (lambda name=name: ran.append(name)) for name in "abcd"}
    seconds = bench_moe_rounds.interleaved(programs, 3)
    assert {name: len(times) for name, times in seconds.items()} == dict.fromkeys("abcd", 3)
    assert set(ran) == set("abcd")


def test_ratio_is_the_median_over_rounds():
    assert bench_moe_rounds.median_ratio([2.0, 30.0, 5.0], [1.0, 10.0, 1.0]) == 3.0


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--points=A,D", "there is no D; give some of A, B, C, tiny, or none"),
        ("--peers=vmoe", "there is no vmoe; give some of maxtext, fairscale, deepspeed, "),
        ("--tpu=v9", "there is no v9; give some of v3-128, v3-2048, or none"),
    ],
)
def test_unknown_names_are_refused(argument, message, capsys):
    with pytest.raises(SystemExit):
        bench_moe.main([argument])
    assert message in capsys.readouterr().err.replace("\n", " ")


def test_peers_that_are_missing_are_said_to_be(capsys):
    assert bench_moe._usable_peers(["fairscale"]) == {}
    assert capsys.readouterr().out == "fairscale: not installed\n"


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--rows=ours,theirs", "there is no theirs; give some of ours, ours-full, ours-einsum, "),
        ("--topologies=v3:2x2", "MaxText is not installed in this Python; see --help"),
    ],
)
def test_comparison_with_maxtext_says_what_is_missing(argument, message, capsys):
    with pytest.raises(SystemExit):
        bench_moe_tpu_maxtext.main([argument])
    assert message in capsys.readouterr().err.replace("\n", " ")


def test_comparison_with_maxtext_gives_ratios_to_ours():
    ours = {"gflop": 4.0, "inspector_seconds": 2e-3, "optimal_seconds": 1e-3, "temp_mb": 8.0}
    ours |= {"compile_cpu_seconds": 1.0, "collectives": {}, "opaque": []}
    theirs = ours | {"inspector_seconds": 6e-3, "temp_mb": 20.0}
    theirs["collectives"] = {"all-to-all": [65536, 65536, 4]}
    line = bench_moe_tpu_maxtext._line("maxtext", theirs, ours)
    cells = "maxtext 4 6.00 3.00 1.00 1.00 20.00 2.50 1.0 all-to-all 2 x 65,536"
    assert line.split() == cells.split()
    # The time of a kernel that nobody can look into is not told.
    line = bench_moe_tpu_maxtext._line("kernel", theirs | {"opaque": ["1 run"]}, ours)
    cells = "kernel 4 - - - - 20.00 2.50 1.0 all-to-all 2 x 65,536 [1 run]"
    assert line.split() == cells.split()


def test_comparison_with_maxtext_goes_on_where_it_was_stopped(monkeypatch, tmp_path, capsys):
    row = {"gflop": 4.0, "inspector_seconds": 0.006, "optimal_seconds": 0.001, "temp_mb": 20.0}
    row |= {"opaque": [], "collectives": {}, "compile_cpu_seconds": 1.0}
    compiled, file = [], tmp_path / "found.json"
    file.write_text(json.dumps({"v3:4x4": {"ours": row}}))

    def figures(name, devices):
        compiled.append(name)
        return row

    tool = bench_moe_tpu_maxtext
    monkeypatch.setattr(tool.importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(tool.jax.config, "update", lambda name, value: None)
    monkeypatch.setattr(tool, "topology_devices", lambda name: jax.devices())
    monkeypatch.setattr(tool, "difference", lambda: 0.0)
    monkeypatch.setattr(tool, "_figures", figures)
    tool.main(["--topologies=v3:4x4", "--rows=ours,maxtext", f"--json={file}", "--resume"])
    assert compiled == ["maxtext"]
    assert list(json.loads(file.read_text())["v3:4x4"]) == ["ours", "maxtext"]
    assert "whatever made them" in capsys.readouterr().out
