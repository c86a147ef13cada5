"""From gin files to a table and a gin file of the fastest layout, with a compiler made up."""

import dataclasses
import itertools
import re
from pathlib import Path

import jax
import pytest
from absl import flags

from gshard_annotate.inspector.report import Cost, Memory, Report
from gshard_train import plan
from gshard_train.errors import UserError
from gshard_train.planning import planner, winner
from gshard_train.planning.options import VARIED, Options
from gshard_train.precompiling.compiler import Progress
from gshard_train.precompiling.configuration import configured
from gshard_train.precompiling.job import Facts, Fault, Job, Result

GIB = 2**30
FILES = tuple(f"gshard_train/configs/models/{name}.gin" for name in ("moe_2048e_36l", "tiny"))


class FakeCompiler:
    """Says of each layout what the test wants; the mesh is made as the gin files have it."""

    def __init__(self, outcome, on_progress=None):
        self.outcome, self.on_progress, self.asked = outcome, on_progress, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def describe(self, job):
        experiment = job.layout.applied(configured(job).experiment)
        try:
            mesh = experiment.make_mesh(devices=jax.devices(), cpu_devices=None)
        except ValueError as error:
            return Result(job=job, fault=Fault(kind="refused", message=str(error)))
        facts = Facts(
            num_devices=8, device_kind="TPU v3", mesh=dict(mesh.shape), parameters=100,
            expert_parameters=60, active_parameters=55, batch_size=16, source_tokens=256,
            target_tokens=256, model_flops=1e9, tensors=(),
        )  # fmt: skip
        return Result(job=job, facts=facts)

    def compile(self, job, *, timeout_seconds=None):
        self.asked.append(job.layout)
        if self.on_progress:
            self.on_progress(Progress("compiling", 2.0, GIB, 7))
        result, found = self.describe(job), self.outcome(job.layout)
        if isinstance(found, Fault):
            return dataclasses.replace(result, fault=found)
        report = Report(
            title="a", platform="tpu", chip="TPU v3 core", mesh={}, values=(), exchanges=(),
            memory=Memory(0, 0, 0, 0, 3 * GIB, 16 * GIB),
            cost=Cost(1.0, 1.0, 0.0, 0.0, found, found), compile_seconds=1.0,
            notes=("between slices nothing is counted",),
        )  # fmt: skip
        return dataclasses.replace(result, report=report)


def _fastest_is_split_by_two(layout):
    if layout.mesh is None:
        return 0.5
    if layout.mesh != {"data": 4, "expert": 2}:
        return Fault(kind="crashed", message="the compiler's process was ended by SIGSEGV\nsoon")
    return 0.25 if layout.dispatch == "gather" else 0.26


def _options(tmp_path, **changed) -> Options:
    given = {"out": str(tmp_path / "best.gin"), "results": str(tmp_path / "kept"), **changed}
    return Options(**given)


def _job(**changed) -> Job:
    return Job(**{"gin_files": FILES, "topology": "v3:2x2", **changed})


@pytest.fixture
def planned(tmp_path):
    """Runs a plan with an outcome, and gives the layouts that were compiled."""

    def run(outcome, job=None, **options):
        made = []

        def compiler_of(*, on_progress):
            made.append(FakeCompiler(outcome, on_progress))
            return made[-1]

        planner.plan(job or _job(), _options(tmp_path, **options), compiler_of=compiler_of)
        return made[0].asked

    return run


def test_best_layout_is_a_gin_file_that_describes_it(tmp_path, planned, capsys):
    bindings = ("config.TransformerConfig.mlp = 48",)
    asked = planned(
        _fastest_is_split_by_two,
        _job(gin_bindings=bindings),
        vary=("mesh", "dispatch"),
        price=0.001,
        html=str(tmp_path / "a.html"),
    )
    assert asked[0].mesh is None
    out = capsys.readouterr().out
    assert re.search(r"^> +data 4 expert 2 .* gather .* 0.25 +1,024 +collectives 100 %", out, re.M)
    assert re.search(r"^ *\* +data 2 expert 4 .* 0.5 +512", out, re.M)
    assert "SIGSEGV" in out
    assert "2.00 times as fast as the gin files' own" in out
    assert "Of this one: between slices nothing is counted." in out
    assert "take 11,303 days, 248 device-years, 2,170 at 0.001 an hour" in out
    page = (tmp_path / "a.html").read_text()
    assert 'class="best">data 4 expert 2</td>' in page
    assert page.count("<circle") == 3
    best = _job(gin_files=(str(tmp_path / "best.gin"),))
    experiment = configured(best).experiment
    mesh = experiment.make_mesh(devices=jax.devices(), cpu_devices=None)
    assert dict(mesh.shape) == {"data": 4, "expert": 2}
    assert (experiment.model.dispatch, experiment.model.mlp) == ("gather", 48)
    assert experiment.model.num_groups == 8


def test_second_search_compiles_nothing_again_but_what_crashed(planned, capsys, monkeypatch):
    first = planned(_fastest_is_split_by_two, vary=("mesh",))
    crashed = [one for one in first if one.mesh and one.mesh != {"data": 4, "expert": 2}]
    assert crashed
    assert planned(_fastest_is_split_by_two, vary=("mesh",)) == crashed
    said = capsys.readouterr().err
    assert "(kept from before)" in said
    assert "are not taken" not in said
    monkeypatch.setattr("gshard_train.planning.kept.sources", lambda: "changed")
    assert planned(_fastest_is_split_by_two, vary=("mesh",)) == first
    said = capsys.readouterr().err
    assert said.count("results kept by other sources or another compiler are not taken") == 1


def test_ctrl_c_shows_what_was_found_and_keeps_it(tmp_path, planned, capsys):
    count = itertools.count()

    def outcome(layout):
        if next(count) == 2:
            raise KeyboardInterrupt
        return 0.5

    with pytest.raises(KeyboardInterrupt, match=r"the same command goes on from .*kept"):
        planned(outcome)
    assert "Interrupted." in capsys.readouterr().out
    assert len(list((tmp_path / "kept").iterdir())) == 2
    assert (tmp_path / "best.gin").exists()


def test_disk_that_is_full_is_no_end(tmp_path, planned, capsys, monkeypatch):
    def full(self, result):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gshard_train.planning.kept.Kept.keep", full)
    planned(lambda layout: 0.5, vary=("remat",))
    said = capsys.readouterr()
    assert said.err.count("results are not kept: [Errno 28] No space left on device") == 1
    assert "the fastest that fits" in said.out


def test_ctrl_c_before_anything_was_compiled_is_called_so(tmp_path, planned, capsys):
    def outcome(layout):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        planned(outcome, vary=("remat",))
    assert "Interrupted before the first layout was compiled." in capsys.readouterr().out


def test_where_nothing_fits_the_nearest_is_named_with_what_helps(tmp_path, planned, capsys):
    def outcome(layout):
        needed = 17 * GIB if layout.remat == "full" else 20 * GIB
        limit = int(15.48 * GIB)
        return Fault(kind="too large", message="a", needed_bytes=needed, limit_bytes=limit)

    planned(outcome, vary=("remat",))
    out = capsys.readouterr().out
    assert "Nearest: data 2 expert 4, gshard, 8 groups, remat full, einsum" in out
    assert "needs 17 GiB of 15.5 GiB" in out
    assert "a smaller BATCH_SIZE" in out
    assert not (tmp_path / "best.gin").exists()


def test_own_mesh_that_does_not_fit_the_machine_is_no_end(planned, capsys, monkeypatch):
    monkeypatch.setattr("gshard_train.planning.machine.topology_devices", _eight_cores)
    asked = planned(
        lambda layout: 0.5,
        _job(gin_bindings=("MESH_AXES = {'data': 5, 'expert': 1}",)),
        candidates=1,
    )
    assert asked[0].mesh is not None
    said = capsys.readouterr()
    assert "own layout is refused, others are searched; to mend it:\n  make_mesh: " in said.err
    assert "axes data=5, expert=1 need 5 devices" in said.err
    assert " *" not in said.out.split("fastest that fits")[0]


def _eight_cores(name, *, num_slices):
    @dataclasses.dataclass
    class Core:
        device_kind: str = "TPU v3"

    return [Core()] * 8


def test_all_that_is_wrong_is_told_at_once(tmp_path, planned):
    theirs = tmp_path / "theirs.gin"
    theirs.write_text("NUM_EXPERTS = 4\n")
    with pytest.raises(UserError) as error:
        planned(
            lambda layout: 0.5,
            _job(gin_bindings=("NUM_EXPRTS = 4",)),
            out=str(theirs),
            time_limit=-1.0,
            candidates=0,
            vary=("remats",),
        )
    said = str(error.value)
    assert "--time_limit=-1.0 must be a number above 0" in said
    assert "--candidates=0 must be an integer of at least 1" in said
    assert "--vary=remats: that is nothing that can be varied; did you mean remat?" in said
    assert f"--out={theirs} is there, and gshard-plan did not write it" in said
    assert "unknown macro 'NUM_EXPRTS'" in said
    assert theirs.read_text() == "NUM_EXPERTS = 4\n"


def test_files_that_bind_elsewhere_are_told_and_nothing_is_written(tmp_path, planned):
    scoped = tmp_path / "scoped.gin"
    scoped.write_text(
        "from __gin__ import dynamic_registration\n"
        "from gshard_train.models import config\n"
        f'include "{FILES[0]}"\ninclude "{FILES[1]}"\n'
        "MODEL = @big/config.TransformerConfig()\n"
        "big/config.TransformerConfig.remat = 'full'\n"
    )
    with pytest.raises(UserError, match=r"(?s)remat='full'.* instead of .*bind by hand"):
        planned(
            lambda layout: 0.5 if layout.remat is None else 0.25,
            _job(gin_files=(str(scoped),)),
            vary=("remat",),
        )
    assert not (tmp_path / "best.gin").exists()


def test_dry_run_shows_what_would_be_compiled_first(planned, capsys):
    assert planned(lambda layout: 0.5, dry_run=True) == []
    out = capsys.readouterr().out
    assert re.search(
        r"^  [\d.e-]+ s a step \(at least .*data 2 expert 4, gshard, 8 groups.* \*$", out, re.M
    )


def test_flags_begin_with_everything_varied():
    values = flags.FlagValues()
    plan.define(values)
    values(["gshard-plan", "--topology=v3:2x2"])
    assert tuple(values.vary) == VARIED
    assert (values.timeout, values.time_limit, values.candidates) == (300.0, 570.0, None)


def test_place_for_the_file_is_refused_before_anything_is_done(tmp_path):
    faults = [
        *winner.place_faults(str(tmp_path / "no" / "a.gin")),
        *winner.place_faults(str(tmp_path)),
    ]
    assert faults == [
        f"--out={tmp_path}/no/a.gin: there is no folder {tmp_path}/no; give one that is there",
        f"--out={tmp_path} is a folder; give a file",
    ]
    assert not list(winner.place_faults(str(Path(tmp_path, "a.gin"))))
