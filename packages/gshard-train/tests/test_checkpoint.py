"""Saving, going on elsewhere, and what is refused."""

import concurrent.futures
import errno
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import types
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from etils import epath
from jax.sharding import NamedSharding, PartitionSpec

from gshard_annotate import make_mesh
from gshard_train import agreement, starting
from gshard_train import state as state_module
from gshard_train.checkpointing import checksums, fitting, read_faults, reading, show, stored
from gshard_train.checkpointing.checkpoint import Checkpointer
from gshard_train.checkpointing.policy import Kept
from gshard_train.checkpointing.trained import find_steps
from gshard_train.errors import RESTART, USER_ERROR, UserError

FEED = {"next_index": 7, "seed": 2**40}


class State(NamedTuple):
    step: Any
    params: Any
    opt_state: Any
    key: Any


def make_state(mesh, *, num_experts=8, mlp=6, fill=0.0):
    def put(array, *spec):
        return jax.device_put(array, NamedSharding(mesh, PartitionSpec(*spec)))

    wi = jnp.arange(num_experts * 4 * mlp, dtype=jnp.float32).reshape(num_experts, 4, mlp)
    params = {
        "moe": {"wi": put(wi + fill, "expert"), "router": put(jnp.ones((4, num_experts)))},
        "scale": put(jnp.full((4,), 0.5 + fill, jnp.bfloat16)),
    }
    opt_state = optax.adam(1e-3).init(params)
    key = put(jax.random.key_data(jax.random.key(3)))
    return State(put(jnp.int32(11)), params, opt_state, key)


def abstract(state, mesh=None, *spec):
    """What to restore into: the state's own shardings, or `spec` on a mesh for the experts."""

    def leaf(array):
        sharding = array.sharding
        if mesh is not None:
            sharding = NamedSharding(mesh, PartitionSpec(*(spec if array.ndim == 3 else ())))
        return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=sharding)

    return jax.tree.map(leaf, state)


def assert_same(state, other):
    assert jax.tree.structure(state) == jax.tree.structure(other)
    for one, two in zip(jax.tree.leaves(state), jax.tree.leaves(other), strict=True):
        assert one.dtype == two.dtype
        np.testing.assert_array_equal(np.asarray(one), np.asarray(two))


@pytest.fixture
def state(mesh):
    return make_state(mesh)


@pytest.fixture
def saved(tmp_path, mesh):
    """A run's directory with the steps 5 and 10."""
    with Checkpointer(tmp_path) as checkpointer:
        for step in (5, 10):
            checkpointer.save(step, make_state(mesh, fill=float(step)), {"next_index": step})
    return tmp_path


@pytest.mark.parametrize("asynchronous", [True, False])
def test_everything_comes_back(tmp_path, state, asynchronous):
    with Checkpointer(tmp_path, asynchronous=asynchronous) as checkpointer:
        assert checkpointer.save(11, state, FEED)
        restored, feed = checkpointer.restore(11, abstract(state))
    assert_same(restored, state)
    assert restored.params["moe"]["wi"].sharding == state.params["moe"]["wi"].sharding
    assert feed == FEED


@pytest.mark.parametrize(
    ("axes", "count", "spec"),
    [
        ({"data": 4, "expert": 2}, 8, ("expert",)),
        ({"data": 1, "expert": 4}, 4, ("expert", "data")),
        ({"data": 2, "expert": 1}, 2, (None, "data")),
        ({"data": 1, "expert": 1}, 1, ()),
        ({"data": 1, "expert": 2, "model": 3}, 6, ("expert", None, "model")),
    ],
)
def test_restored_to_other_devices_and_shardings(tmp_path, state, axes, count, spec):
    other = make_mesh(axes, devices=jax.devices()[:count])
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, state, {})
    with Checkpointer(tmp_path) as checkpointer:
        restored, _ = checkpointer.restore(1, abstract(state, other, *spec))
    assert_same(restored, state)
    wanted = NamedSharding(other, PartitionSpec(*spec))
    assert restored.params["moe"]["wi"].sharding.is_equivalent_to(wanted, 3)
    assert restored.opt_state[0].nu["moe"]["wi"].sharding.is_equivalent_to(wanted, 3)


def test_a_part_is_restored_whatever_the_rest_is(saved, mesh):
    state = make_state(mesh, fill=10.0)
    with Checkpointer(saved) as checkpointer:
        params = checkpointer.restore_part(10, "params", abstract(state.params))
        assert_same(params, state.params)
        other = {**state.params, "scale": jnp.zeros(5)}
        expected = r"is of another model: 1 tensors? differs? and nothing was changed"
        with pytest.raises(UserError, match=expected) as error:
            checkpointer.restore_part(10, "params", abstract(other))
    assert "params/scale is bfloat16[4] in the checkpoint and float32[5] in the model" in str(
        error.value
    )


def test_a_step_tells_what_run_it_is(tmp_path, state):
    config, identity = "TRAIN_STEPS = 7\n", {"mixture": "m4", "seed": 2**40, "temperature": None}
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, state, FEED, config=config, identity=identity)
        checkpointer.save(2, state, FEED)
    # As it was before steps told.
    shutil.rmtree(tmp_path / "checkpoints" / "2" / "run")
    (tmp_path / "checkpoints" / "2" / "SHA256SUMS").unlink()
    with Checkpointer(tmp_path) as checkpointer:
        assert checkpointer.feed_identity(1) == identity
        assert checkpointer.feed_identity(2) is None
        assert stored.Stored(tmp_path).run(1)["config"] == config
        assert checkpointer.restore(2, abstract(state))[1] == FEED


def test_restored_inside_a_mesh_context(saved, mesh):
    state = make_state(mesh, fill=10.0)
    with Checkpointer(saved) as checkpointer, jax.set_mesh(mesh):
        restored, _ = checkpointer.restore(10, abstract(state))
    assert_same(restored, state)


def test_arrays_may_be_donated_right_after_an_asynchronous_save(tmp_path, mesh):
    sharding = NamedSharding(mesh, PartitionSpec("expert"))
    x = jax.device_put(jnp.ones((8, 512, 512)), sharding)
    spoil = jax.jit(lambda x: x * 0.0 - 1.0, donate_argnums=0, out_shardings=sharding)
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, {"x": x}, {})
        x = spoil(x)
        restored, _ = checkpointer.restore(1, abstract({"x": x}))
    assert (np.asarray(restored["x"]) == 1.0).all()


def test_newest_are_kept_and_a_step_is_saved_once(tmp_path, state):
    with Checkpointer(tmp_path, keep=2) as checkpointer:
        assert [checkpointer.save(step, state, FEED) for step in (1, 2, 2, 3)] == [
            True,
            True,
            False,
            True,
        ]
        assert checkpointer.latest_step() == 3
        assert not checkpointer.save(3, state, {})
    assert sorted(os.listdir(tmp_path / "checkpoints")) == ["2", "3"]


def test_reading_changes_nothing_on_disk(tmp_path, state):
    with Checkpointer(tmp_path / "run") as checkpointer:
        assert checkpointer.latest_step() is None
        with pytest.raises(UserError, match=r"no checkpoint 5 in .*checkpoints; there is none$"):
            checkpointer.restore(5, abstract(state))
    assert not (tmp_path / "run").exists()


def test_step_that_is_not_there_lists_those_that_are(saved, state):
    with (
        Checkpointer(saved) as checkpointer,
        pytest.raises(UserError, match=r"there is no checkpoint 7 in .*; there are 5, 10$"),
    ):
        checkpointer.restore(7, abstract(state))


def snapshot(directory):
    return {path: path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def test_checkpoint_of_another_model_names_the_tensors(saved, mesh):
    before = snapshot(saved)
    other = make_state(mesh, num_experts=4)
    params = dict(other.params, extra=jnp.ones((3,)), scale=jnp.ones((4,), jnp.float32))
    del params["moe"]["router"]
    with Checkpointer(saved) as checkpointer, pytest.raises(UserError) as caught:
        checkpointer.restore(10, abstract(other._replace(params=params)))
    first, *lines = str(caught.value).split("\n")
    assert first.startswith(
        f"checkpoint 10 in {saved}/checkpoints is of another model: 8 tensors differ and nothing "
        "was changed; use the config.gin beside it, or another MODEL_DIR for this model"
    )
    assert lines == [
        "  params/extra float32[3] is not in the checkpoint",
        "  params/moe/router float32[4, 8] is not in the model",
        "  params/moe/wi is float32[8, 4, 6] in the checkpoint and float32[4, 4, 6] in the model",
        "  params/scale is bfloat16[4] in the checkpoint and float32[4] in the model",
        "  opt_state/0/mu/moe/router is float32[4, 8] in the checkpoint "
        "and float32[4, 4] in the model",
        "  opt_state/0/mu/moe/wi is float32[8, 4, 6] in the checkpoint "
        "and float32[4, 4, 6] in the model",
        "  opt_state/0/nu/moe/router is float32[4, 8] in the checkpoint "
        "and float32[4, 4] in the model",
        "  opt_state/0/nu/moe/wi is float32[8, 4, 6] in the checkpoint "
        "and float32[4, 4, 6] in the model",
    ]
    assert snapshot(saved) == before


def test_checkpoint_of_another_optimizer_says_so(tmp_path, mesh):
    state = make_state(mesh)
    config = "optimizer.adam.b2 = 0.9\nexperiment.Experiment.optimizer = @optimizer.adam()\n"
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(10, state, FEED, config=config)
    other = state._replace(opt_state=optax.sgd(1e-3, momentum=0.9).init(state.params))
    expected = (
        r"checkpoint 10 in .* is of another optimizer: \d+ tensors differ, none of the parameters, "
        r"and nothing was changed; .*, or another MODEL_DIR for this optimizer; .*changed_model.*\n"
        r"  the run that saved it has optimizer = @optimizer\.adam\(\)\n"
    )
    with Checkpointer(tmp_path) as checkpointer, pytest.raises(UserError, match=expected):
        checkpointer.restore(10, abstract(other))


def test_long_lists_of_tensors_are_cut(tmp_path, mesh):
    tree = {f"t{i:02}": jnp.ones(()) for i in range(25)}
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, tree, {})
        with pytest.raises(UserError) as caught:
            checkpointer.restore(1, {"t00": jax.ShapeDtypeStruct((), jnp.float32)})
    lines = str(caught.value).split("\n")
    assert len(lines) == 22
    assert lines[-1] == "  and 4 more"


def cut_short(path):
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def remove_arrays(step):
    for path in step.glob("state/**/d/*"):
        path.unlink()


def drop_line(path):
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))


DAMAGES = {
    "no state": lambda step: shutil.rmtree(step / "state"),
    "no feed": lambda step: shutil.rmtree(step / "feed"),
    "empty": lambda step: (shutil.rmtree(step), step.mkdir()),
    "no list of tensors": lambda step: (step / "state" / "_METADATA").unlink(),
    "list cut short": lambda step: cut_short(step / "state" / "_METADATA"),
    "no arrays": remove_arrays,
    "no manifest": lambda step: (step / "state" / "manifest.ocdbt").unlink(),
    "feed cut short": lambda step: cut_short(step / "feed" / "metadata"),
    "no configuration": lambda step: shutil.rmtree(step / "run"),
    "configuration cut short": lambda step: cut_short(step / "run" / "metadata"),
    "sums cut short": lambda step: cut_short(step / "SHA256SUMS"),
    "sums of a part": lambda step: drop_line(step / "SHA256SUMS"),
    "a file for a directory": lambda step: (
        shutil.rmtree(step / "state"),
        (step / "state").touch(),
    ),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_damaged_newest_is_reported_and_left_alone(saved, mesh, damage, caplog):
    damage(saved / "checkpoints" / "10")
    before = snapshot(saved)
    with Checkpointer(saved) as checkpointer:
        assert checkpointer.latest_step() == 5
        assert checkpointer.latest_step() == 5
        assert [m for m in caplog.messages if "Checkpoint 10 in" in m and "cannot be read" in m]
        assert sum("cannot be read" in m for m in caplog.messages) == 1
        assert snapshot(saved) == before
        restored, feed = checkpointer.restore(5, abstract(make_state(mesh)))
        assert_same(restored, make_state(mesh, fill=5.0))
        assert feed == {"next_index": 5}
        # The run comes by the damaged step again.
        again = make_state(mesh, fill=3.0)
        assert checkpointer.save(10, again, {"next_index": 10})
        restored, _ = checkpointer.restore(10, abstract(again))
        assert_same(restored, again)
    assert sorted(os.listdir(saved / "checkpoints")) == ["10", "10.damaged", "5"]


def test_damaged_steps_push_out_no_good_one(tmp_path, mesh):
    state = make_state(mesh)
    with Checkpointer(tmp_path, keep=9) as checkpointer:
        for step in (5, 10, 11, 12):
            checkpointer.save(step, state, {"next_index": step})
    flip_a_bit(tmp_path / "checkpoints" / "10" / "run" / "metadata")
    remove_arrays(tmp_path / "checkpoints" / "11")
    shutil.rmtree(tmp_path / "checkpoints" / "12" / "feed")
    with Checkpointer(tmp_path, keep=2) as checkpointer:
        assert checkpointer.latest_step() == 5
        checkpointer.save(6, state, {"next_index": 6})
    assert sorted(os.listdir(tmp_path / "checkpoints")) == [
        "10.damaged",
        "11.damaged",
        "12.damaged",
        "5",
        "6",
    ]


def test_what_fits_is_restored_when_told(saved, mesh, caplog):
    state = make_state(mesh, fill=10.0)
    other = make_state(mesh, num_experts=4, fill=-1.0)
    made = []

    def make(part):
        made.append(part(other))
        return made[-1]

    with Checkpointer(saved) as checkpointer:
        restored, feed = fitting.restore(checkpointer, 10, abstract(other), make, "fit")
        with pytest.raises(UserError, match=r"of another model: 6 tensors .*changed_model"):
            fitting.restore(checkpointer, 10, abstract(other), make, "refuse")
        # What every run has, such as its step and key, is nothing to take over.
        none = abstract(other._replace(params={"x": jnp.ones(3)}))
        for look in (
            lambda: fitting.restore(checkpointer, 10, none, make, "fit"),
            lambda: fitting.check(checkpointer, 10, none, "fit"),
        ):
            with pytest.raises(UserError, match=r"differ.*; none of its parameters fits, so that"):
                look()
    assert [sorted(each) for each in made] == [["opt_state", "params"]]
    assert jax.tree.leaves(made[0]["params"])[0] is other.params["moe"]["router"]
    assert feed == {"next_index": 10}
    (told,) = [text for text in caplog.messages if "what does not fit" in text]
    assert [line.split()[0] for line in told.splitlines()[1:]] == [
        f"{of}moe/{name}"
        for of in ("params/", "opt_state/0/mu/", "opt_state/0/nu/")
        for name in ("router", "wi")
    ]
    assert_same(restored.params["scale"], state.params["scale"])
    assert_same(restored.params["moe"], other.params["moe"])
    assert restored.step.sharding == other.step.sharding


@pytest.mark.parametrize("damage", [cut_short, pathlib.Path.unlink])
def test_a_damaged_array_is_found_without_sums(tmp_path, mesh, damage):
    state = make_state(mesh, mlp=600)
    with Checkpointer(tmp_path, keep=2) as checkpointer:
        for step in (5, 10):
            checkpointer.save(step, state, {})
    (tmp_path / "checkpoints" / "10" / "SHA256SUMS").unlink()
    damage(array_file(tmp_path / "checkpoints" / "10"))
    with Checkpointer(tmp_path, keep=2) as checkpointer:
        with pytest.raises(UserError, match=r"checkpoint 10 in .* is damaged \(ValueError: .*\);"):
            checkpointer.restore(10, abstract(state))
        assert checkpointer.latest_step() == 5
        checkpointer.save(12, state, {})
    assert sorted(os.listdir(tmp_path / "checkpoints")) == ["10.damaged", "12", "5"]


@pytest.mark.parametrize("times", [1, 9])
def test_what_the_disk_does_not_give_is_no_damage(saved, monkeypatch, times):
    monkeypatch.setattr(read_faults, "_PAUSES_SECONDS", (0.0, 0.0))
    read, failed = checksums._sum, []

    def fails(path, *arguments):
        if len(failed) < times:
            failed.append(path)
            raise OSError(errno.EIO, "Input/output error", str(path))
        return read(path, *arguments)

    monkeypatch.setattr(checksums, "_sum", fails)
    with Checkpointer(saved) as checkpointer:
        if times == 1:
            assert checkpointer.latest_step() == 10
        else:
            with pytest.raises(UserError, match="could not be read: Input/output error") as caught:
                checkpointer.latest_step()
            assert caught.value.exit_code == RESTART
        checkpointer.prepare()
    assert sorted(os.listdir(saved / "checkpoints")) == ["10", "5"]


def test_what_the_user_may_not_read_is_no_damage(saved, monkeypatch, mesh):
    def refused(*_):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(stored.Stored, "_read", refused)
    for look in (
        lambda: Checkpointer(saved).latest_step(),
        lambda: stored.Stored(saved).read(10, {}),
    ):
        with pytest.raises(UserError, match="10 could not be read: Permission denied; let") as seen:
            look()
        assert seen.value.exit_code == USER_ERROR


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def array_file(step):
    return max((step / "state").rglob("d/*"), key=lambda path: path.stat().st_size)


def test_a_flipped_bit_in_an_array_is_damage(tmp_path, mesh, caplog):
    state = make_state(mesh, mlp=600)  # small arrays lie in the index, which has sums of its own
    with Checkpointer(tmp_path) as checkpointer:
        for step in (5, 10):
            checkpointer.save(step, state, {})
    directory = tmp_path / "checkpoints" / "10"
    file = array_file(directory)
    flip_a_bit(file)
    why = f"{file.relative_to(directory)} has changed since it was written"
    with Checkpointer(tmp_path) as checkpointer:
        assert checkpointer.latest_step() == 5
        assert [m for m in caplog.messages if f"cannot be read ({why})" in m]
        for read in (
            lambda: checkpointer.restore(10, abstract(state)),
            lambda: checkpointer.restore_part(10, "params", abstract(state.params)),
        ):
            with pytest.raises(UserError, match=rf"checkpoint 10 in .* is damaged \({why}\); move"):
                read()
        # The run comes by the damaged step again.
        assert checkpointer.save(10, state, {})
    with Checkpointer(tmp_path) as checkpointer:
        assert checkpointer.latest_step() == 10
    assert sorted(os.listdir(tmp_path / "checkpoints")) == ["10", "10.damaged", "5"]


def test_the_sums_are_those_that_sha256sum_checks(saved):
    for step in ("5", "10"):
        directory = saved / "checkpoints" / step
        subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=directory, check=True)
        summed = (directory / "SHA256SUMS").read_text().splitlines()
        files = [path for path in directory.rglob("*") if path.is_file()]
        assert len(summed) == len(files) - 1


def test_a_step_without_sums_is_read_and_gets_them_at_the_next_start(saved, mesh, caplog):
    sums = saved / "checkpoints" / "10" / "SHA256SUMS"
    sums.rename(sums.with_name("SHA256SUMS.0-of-2"))  # the other process was killed
    with Checkpointer(saved) as checkpointer:
        assert checkpointer.latest_step() == 10
        checkpointer.prepare()
    (said,) = caplog.messages
    assert said.startswith("Checkpoint 10 has no sums of its files to compare with: ")
    assert [path.name for path in sums.parent.glob("SHA*")] == ["SHA256SUMS"]
    subprocess.run(["sha256sum", "--check", "--quiet", sums], cwd=sums.parent, check=True)


def test_no_run_begins_anew_unasked_where_there_are_checkpoints(saved, monkeypatch, caplog):
    for step in (5, 10):
        flip_a_bit(saved / "checkpoints" / str(step) / "feed" / "metadata")
    before = snapshot(saved)
    monkeypatch.setattr(state_module, "create", lambda *_, **__: "new")
    parts: Any = types.SimpleNamespace(
        **dict.fromkeys(("model", "optimizer", "mesh", "rules", "seed", "offload_optimizer"))
    )

    def start(**choice):
        choices = starting.Choices(**choice)
        with Checkpointer(saved) as checkpointer:
            return starting.start(parts, parts, parts, checkpointer, choices)

    with pytest.raises(UserError) as caught:
        start()
    assert str(caught.value).splitlines() == [
        f"{saved}/checkpoints has the checkpoints 5, 10 and none can be read:",
        "  10: feed/metadata has changed since it was written",
        "  5: feed/metadata has changed since it was written",
        "put one back as it was; or, to begin anew at step 0, move that directory away, or add "
        "--gin.train.damaged_checkpoints=\"'begin anew'\", which gives them other names",
    ]
    with pytest.raises(UserError, match=r"10: feed/metadata has [\s\S]*\nput one back as it was$"):
        find_steps(Checkpointer(saved), "newest")
    assert start(damaged_checkpoints="begin anew") == ("new", None)
    assert "the run begins anew at step 0" in caplog.messages[-1]
    assert snapshot(saved) == before


def test_the_shape_of_a_run_is_told_without_its_devices(saved, capsys):
    show.main([str(saved), "--compare"])
    told = capsys.readouterr().out
    assert told.count("MiB   as it was written") == 2
    assert '{"next_index": 10}' in told
    assert re.search(r"params/moe/wi +float32 +8 x 4 x 6 +0.00 MiB", told)
    with pytest.raises(SystemExit, match="2"):
        show.main([str(saved), "--step", "7"])
    assert "there is no checkpoint 7 in" in capsys.readouterr().err
    for place, said in {
        saved / "checkpoints" / "5": f"lies in the directory of a run; give that one: {saved}\n",
        saved / "nosuch": f"there is no directory {saved}/nosuch; give a run's directory",
    }.items():
        with pytest.raises(SystemExit, match="2"):
            show.main([str(place)])
        assert said in capsys.readouterr().err


def test_comparing_tells_each_step_that_is_not_as_it_was_written(saved, capsys):
    flip_a_bit(saved / "checkpoints" / "5" / "feed" / "metadata")
    (saved / "checkpoints" / "10" / "SHA256SUMS").unlink()
    with pytest.raises(SystemExit, match="2"):
        show.main([str(saved), "--compare"])
    told, faults = capsys.readouterr()
    five, ten = "damaged: feed/metadata has changed", "there are no sums to compare with"
    rows = told.splitlines()
    assert f"MiB   {five}" in rows[0]
    assert f"MiB   {ten}" in rows[1]
    assert f"show: checkpoint 5: {five}" in faults
    assert f"show: checkpoint 10: {ten}" in faults


def test_half_written_directory_is_ignored_and_later_removed(saved, state):
    half = saved / "checkpoints" / "15.orbax-checkpoint-tmp-3"
    shutil.copytree(saved / "checkpoints" / "10", half)
    (saved / "checkpoints" / "notes").mkdir()
    with Checkpointer(saved) as checkpointer:
        assert checkpointer.latest_step() == 10
        assert half.exists()
        checkpointer.save(20, state, {})
    assert sorted(os.listdir(saved / "checkpoints")) == ["10", "20", "5", "notes"]


KILLED = """
import sys, threading
import jax
jax.config.update("jax_platforms", "cpu")
import jax.numpy as jnp
from gshard_train.checkpointing.checkpoint import Checkpointer
checkpointer = Checkpointer(sys.argv[1])
state = {f"x{i}": jnp.full((256, 1024), float(i)) for i in range(40)}
checkpointer.save(1, state, {"next_index": 1})
checkpointer.wait()
print("saving", flush=True)
checkpointer.save(2, {name: x + 1 for name, x in state.items()}, {"next_index": 2})
print("started", flush=True)
checkpointer.wait()
threading.Event().wait(60)
"""


@pytest.mark.slow
@pytest.mark.parametrize("line", ["saving", "started"])
def test_kill_during_a_save_leaves_a_readable_step(tmp_path, line):
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        while process.stdout.readline().strip() != line:
            pass
        process.send_signal(signal.SIGKILL)
    wanted = {
        f"x{i}": jax.ShapeDtypeStruct(
            (256, 1024), jnp.float32, sharding=jax.sharding.SingleDeviceSharding(jax.devices()[0])
        )
        for i in range(40)
    }
    with Checkpointer(tmp_path) as checkpointer:
        step = checkpointer.latest_step()
        assert step in (1, 2)
        restored, feed = checkpointer.restore(step, wanted)
        assert feed == {"next_index": step}
        for i in range(40):
            assert (np.asarray(restored[f"x{i}"]) == i + step - 1).all()
        assert checkpointer.save(3, restored, {})


def test_kept_are_the_newest_every_third_and_the_best_over_restarts(tmp_path):
    keep = Kept(newest=1, every_steps=3, best=2, metric="eval/all/loss")
    losses = {1: 5.0, 2: 1.0, 3: 4.0, 4: 2.0, 5: float("nan"), 6: 3.0, 7: None, 8: 3.5}
    for step, loss in losses.items():
        metrics = None if loss is None else {"eval/all/loss": loss, "eval/all/accuracy": 0.5}
        with Checkpointer(tmp_path, keep=keep) as checkpointer:
            checkpointer.save(step, {"x": jnp.ones(3)}, {}, metrics=metrics)
    with Checkpointer(tmp_path) as checkpointer:
        assert checkpointer.steps() == [2, 3, 4, 6, 8]


def test_faults_of_what_is_kept_are_named_together():
    with pytest.raises(UserError) as caught:
        Kept(newest=0, every_steps=0, best=2)
    assert caught.value.faults == (
        "Kept: newest=0 must be at least 1: a run goes on from the newest",
        "Kept: every_steps=0 must be at least 1, or None",
        "Kept: best=2 needs metric=, a figure such as 'eval/all/loss'",
    )
    with pytest.raises(UserError, match="metric='eval/all/bleu' needs best="):
        Kept(metric="eval/all/bleu")


def test_keep_must_be_positive(tmp_path):
    with pytest.raises(UserError, match="newest=0 must be at least 1"):
        Checkpointer(tmp_path, keep=0)


@pytest.fixture
def two_processes(monkeypatch):
    """Two threads that take themselves for processes 0 and 1, and gather from each other."""
    own, barrier, slots = threading.local(), threading.Barrier(2, timeout=60), [None, None]
    jax.devices()  # the backend asks for the process too

    def gather(value):
        slots[own.index] = value
        barrier.wait()
        found = list(slots)
        barrier.wait()
        return found

    def run(function):
        def call(index):
            own.index = index
            try:
                return function(index)
            except Exception as error:
                return error

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            return list(pool.map(call, (0, 1)))

    monkeypatch.setattr(agreement, "gathered", gather)
    fake = types.SimpleNamespace(
        process_index=lambda: own.index, process_count=lambda: 2, sharding=jax.sharding
    )
    for module in (agreement, checksums, reading):
        monkeypatch.setattr(module, "jax", fake)
    return run


def hurt(monkeypatch, index):
    """Lets that process alone find a fault in step 10."""
    looked = stored.Stored.damage

    def damage(self, step):
        mine = reading.jax.process_index() == index and step == 10
        return "torn" if mine else looked(self, step)

    monkeypatch.setattr(stored.Stored, "damage", damage)


@pytest.mark.parametrize("index", [0, 1])
def test_processes_look_for_an_older_step_together(saved, two_processes, monkeypatch, index):
    hurt(monkeypatch, index)
    assert two_processes(lambda _: Checkpointer(saved).latest_step()) == [5, 5]


@pytest.mark.parametrize("index", [0, 1])
def test_one_process_moves_a_damaged_step_aside(saved, two_processes, monkeypatch, index):
    hurt(monkeypatch, index)
    monkeypatch.setattr(Checkpointer, "_writer", lambda self: fake)
    fake = types.SimpleNamespace(save=lambda *_, **__: True)

    def save(_):
        checkpointer = Checkpointer(saved)
        monkeypatch.setattr(checkpointer._sums, "add", lambda *_, **__: None)
        return checkpointer.save(10, {"x": np.ones(3)}, {})

    assert two_processes(save) == [True, True]
    assert sorted(os.listdir(saved / "checkpoints")) == ["10.damaged", "5"]


def test_processes_share_the_sums_whatever_one_sees_beside_the_files(
    saved, two_processes, monkeypatch
):
    step, found = epath.Path(saved / "checkpoints" / "10"), checksums.files
    checksums.discard(step)
    (step / "state" / ".nfs01").touch()  # removed, and still open somewhere
    monkeypatch.setattr(
        checksums,
        "files",
        lambda step: ["a.log"] * checksums.jax.process_index() + found(step),
    )
    monkeypatch.setattr(checksums, "_sum", lambda path, *_: "0" * 64)
    assert two_processes(lambda _: checksums.write(step)) == [None, None]
    assert two_processes(lambda _: checksums.faults(step)) == [[], []]
    lines = [line for path in step.glob("SHA*") for line in path.read_text().splitlines()]
    assert sorted(line[66:] for line in lines if "a.log" not in line) == found(step)


def test_an_error_of_one_process_is_raised_on_all(two_processes):
    def work(index, error):
        def fail():
            if index == 1:
                raise error

        agreement.together(fail)

    user, other = two_processes(lambda index: work(index, UserError("no such file")))
    assert isinstance(user, UserError)
    assert isinstance(other, UserError)
    assert (str(user), str(other)) == ("process 1: no such file", "no such file")
    there, _ = two_processes(lambda index: work(index, read_faults.ReadError("lost", RESTART)))
    assert isinstance(there, UserError)
    assert there.exit_code == RESTART
    told, raised = two_processes(lambda index: work(index, OSError("lost")))
    assert isinstance(told, RuntimeError)
    assert isinstance(raised, OSError)
    assert str(told) == "process 1: OSError: lost"


def test_the_thread_of_the_sums_ends_when_the_manager_cannot_close(tmp_path, monkeypatch):
    checkpointer = Checkpointer(tmp_path)
    checkpointer.save(1, {"x": jnp.ones(3)}, {})
    close = checkpointer._manager.close

    def fail():
        close()
        raise OSError("disk full")

    monkeypatch.setattr(checkpointer._manager, "close", fail)
    with pytest.raises(OSError, match="disk full"):
        checkpointer.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("checksums")]


def test_sums_that_take_too_long_are_given_up(saved, monkeypatch, caplog):
    path = saved / "checkpoints" / "10"
    (path / "SHA256SUMS").unlink()

    def endless(_, stopped):
        while not stopped():
            threading.Event().wait(0.01)
        return ""

    with monkeypatch.context() as patched:
        patched.setattr(checksums, "_sum", endless)
        with Checkpointer(saved) as checkpointer:
            checkpointer._sums.add(path, committed=lambda: True)
            checkpointer.give_up_sums(after_seconds=0.05)
    assert not list(path.glob("SHA256SUMS*"))
    assert not caplog.records  # nothing failed


@pytest.mark.parametrize("stays", [True, False])
def test_sums_of_a_step_that_is_being_removed_are_not_missed(saved, monkeypatch, caplog, stays):
    step = epath.Path(saved / "checkpoints" / "5")
    removal = threading.Timer(0.3, shutil.rmtree, [step])

    def gone(*_, **__):
        if not stays:
            removal.start()
        raise FileNotFoundError("5/state/d/a")

    monkeypatch.setattr(checksums, "write", gone)
    monkeypatch.setattr(checksums, "_REMOVAL_SECONDS", 0.0 if stays else 30.0)
    sums = checksums.BackgroundSums()
    sums.add(step, committed=lambda: True)
    sums.close()
    assert (
        caplog.messages
        == [
            "Checkpoint 5 is saved, but its files have no sums to compare with later: "
            "FileNotFoundError: 5/state/d/a"
        ][:stays]
    )


def test_sums_of_a_step_end_before_it_is_removed(saved, monkeypatch):
    begun = threading.Event()

    def write(step, *, stopped):
        begun.set()
        while not stopped():
            pass
        assert step.exists()

    monkeypatch.setattr(checksums, "write", write)
    step = epath.Path(saved / "checkpoints" / "5")
    sums = checksums.BackgroundSums()
    sums.add(step, committed=lambda: True)
    begun.wait()
    sums.leave_out([step])
    shutil.rmtree(step)
    sums.close()


def test_sums_are_compared_once_for_a_step_and_its_parameters(saved, mesh, monkeypatch):
    compared = []
    monkeypatch.setattr(checksums, "faults", lambda step: compared.append(step.name) or [])
    checkpointer = Checkpointer(saved)
    assert find_steps(checkpointer, "newest") == [10]
    checkpointer.restore_part(10, "params", abstract(make_state(mesh).params))
    assert find_steps(checkpointer, (5,)) == [5]
    assert compared == ["10"]
