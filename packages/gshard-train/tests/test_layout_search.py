"""Which layouts a search tries, in which order, and what it leaves out."""

import dataclasses
import itertools

import jax
import pytest

from gshard_annotate import make_mesh
from gshard_annotate.inspector.chips import CHIPS
from gshard_annotate.inspector.report import Cost, Memory, Report
from gshard_train import layouts
from gshard_train.experiment import Experiment
from gshard_train.mesh_faults import mesh_faults
from gshard_train.models.config import TransformerConfig
from gshard_train.optimizer import adam
from gshard_train.planning import search, space
from gshard_train.planning.floor import Floor, Floors
from gshard_train.planning.guess import Guess
from gshard_train.planning.row import Candidate, Row
from gshard_train.planning.search import Limits, Search
from gshard_train.precompiling.job import Facts, Fault, Job, Result
from gshard_train.precompiling.layout import Layout

GIB = 2**30


def _experiment(*, batch_size: int = 16, **model) -> Experiment:
    sizes = {
        "source_vocab_size": 16,
        "target_vocab_size": 24,
        "embed": 8,
        "mlp": 12,
        "num_heads": 2,
        "head_dim": 4,
        "num_encoder_layers": 4,
        "num_decoder_layers": 4,
        "num_experts": 4,
        "num_groups": 8,
    }
    return Experiment(
        model_dir="/tmp/none",
        make_mesh=lambda axes=None, devices=None: make_mesh(axes or {}, devices=devices),
        model=TransformerConfig(**{**sizes, **model}),
        optimizer=adam(1e-3),
        make_feed=lambda **_: None,
        mixture_or_task_name="a",
        task_feature_lengths={"inputs": 8, "targets": 6},
        batch_size=batch_size,
    )


def test_layout_changes_what_it_says_and_nothing_else():
    experiment = _experiment()
    assert Layout().applied(experiment) == experiment
    layout = Layout(rules="fsdp", num_groups=64, remat="full", microbatches=2, dispatch="gather")
    changed = layout.applied(experiment)
    assert changed.rules == layouts.fsdp()
    assert changed.microbatches == 2
    assert changed.model == dataclasses.replace(
        experiment.model, num_groups=64, remat="full", dispatch="gather"
    )
    assert changed.make_mesh is experiment.make_mesh


def test_layout_gives_the_mesh_its_axes_on_the_devices_of_the_caller():
    made = Layout(mesh={"data": 1, "expert": 1, "stage": 1}).applied(_experiment()).make_mesh
    assert dict(made(devices=jax.devices()[:1]).shape) == {"data": 1, "expert": 1, "stage": 1}


def test_layout_that_the_model_cannot_have_is_refused():
    with pytest.raises(ValueError, match="num_groups=0 must be an integer of at least 1"):
        Layout(num_groups=0).applied(_experiment())


def test_every_mesh_of_the_devices_is_among_the_candidates_or_refused():
    experiment = _experiment(num_heads=4)
    own = {"data": 2, "expert": 4}
    found = space.candidates(experiment, space.Space(num_devices=8, own_mesh=own))
    meshes = {tuple(layout.mesh.values()) for layout in found}
    expected = set()
    for data, expert, model, stage in itertools.product((1, 2, 4, 8), repeat=4):
        if data * expert * model * stage == 8 and expert <= 4 and model <= 4 and stage <= 2:
            expected.add((data, expert, *(size for size in (model, stage) if size > 1)))
    assert meshes == expected
    assert found.refused
    for layout, applied in found.items():
        mesh = make_mesh(layout.mesh, devices=jax.devices())
        assert not list(mesh_faults(applied, mesh)), layout


def test_only_what_is_to_vary_varies_and_the_own_layout_is_not_repeated():
    experiment = _experiment()
    own = {"data": 2, "expert": 4}
    where = space.Space(num_devices=8, own_mesh=own, vary=("remat", "microbatches"))
    found = list(space.candidates(experiment, where))
    # 8 groups on 8 devices: no microbatches.
    assert found == [
        Layout(remat="save_dispatch", microbatches=1),
        Layout(remat="full", microbatches=1),
    ]


def test_rules_that_only_the_files_have_stay():
    experiment = dataclasses.replace(_experiment(), rules=layouts.gshard().replace(embed="data"))
    found = space.candidates(experiment, space.Space(num_devices=8, own_mesh=None))
    assert {layout.rules for layout in found} == {None}


def test_state_of_a_floor_is_counted_by_hand():
    experiment = _experiment()
    floors = Floors(experiment)
    whole = floors.of(experiment, {"data": 1, "expert": 1}, CHIPS["v3"]).bytes
    split = floors.of(experiment, {"data": 2, "expert": 4}, CHIPS["v3"]).bytes
    M, H, E, pairs, words = 8, 12, 4, 4, 4
    experts = pairs * E * (2 * M * H + H + M) * words  # with biases, where there are any
    without_biases = pairs * E * 2 * M * H * words
    # Adam has two moments beside each parameter; three quarters of the experts are elsewhere.
    assert 3 * without_biases * 3 / 4 <= whole - split <= 3 * experts * 3 / 4


def test_floor_of_recomputing_and_of_idle_stages_is_higher():
    experiment = _experiment()
    floors = Floors(experiment)

    def seconds(layout: Layout, mesh: dict) -> float:
        return floors.of(layout.applied(experiment), mesh, CHIPS["v3"]).seconds

    one = {"data": 1, "expert": 1}
    assert seconds(Layout(), one) < seconds(Layout(remat="full"), one)
    staged = {"data": 1, "expert": 1, "stage": 2}
    few, many = (Layout(pipeline_microbatches=count) for count in (2, 8))
    assert seconds(many, staged) < seconds(few, staged)


def _candidate(*, remat="none", parts=1, seconds=1.0, room=1, model=None, own=False) -> Candidate:
    layout = Layout(remat=remat, microbatches=parts, num_groups=model or 8)
    return Candidate(
        layout=layout,
        experiment=layout.applied(_experiment()),
        mesh={"data": 2, "expert": 4},
        floor=Floor(
            seconds=seconds / 2,
            bytes=room * GIB,
            guessed_seconds=seconds,
            guessed_bytes=2 * room * GIB,
        ),
        own=own,
    )


def _row(candidate: Candidate, *, seconds: float | None = None, kind=None, room=4.0) -> Row:
    facts = Facts(
        num_devices=8, device_kind="TPU v3", mesh=candidate.mesh, parameters=1, expert_parameters=0,
        active_parameters=1, batch_size=16, source_tokens=128, target_tokens=96, model_flops=1.0,
        tensors=(),
    )  # fmt: skip
    report = fault = None
    if kind:
        needed = int(room * GIB) if kind == "too large" else None
        fault = Fault(kind=kind, message=f"{kind}, 7 lines", needed_bytes=needed)
    else:
        report = Report(
            title="a", platform="tpu", chip="TPU v3 core", mesh={}, values=(), exchanges=(),
            memory=Memory(0, 0, 0, 0, int(room * GIB), 16 * GIB),
            cost=Cost(1.0, 1.0, 0.0, 0.0, seconds, seconds), compile_seconds=1.0,
        )  # fmt: skip
    result = Result(
        job=Job(gin_files=(), topology="v3:2x2"), facts=facts, report=report, fault=fault
    )
    return Row(candidate=candidate, result=result)


LIMITS = Limits(seconds=100.0, device_bytes=16 * GIB)


def test_search_compiles_the_best_guess_first_and_leaves_out_what_cannot_win():
    own = _candidate(seconds=9.0, own=True)
    fast, slow = _candidate(model=16, seconds=2.0), _candidate(model=32, seconds=4.1)
    again = _candidate(model=16, seconds=2.2, remat="full")
    huge = _candidate(model=64, seconds=0.1, room=17)
    seconds = {id(own): 10.0, id(fast): 2.0, id(slow): 4.2}
    asked = []

    def compiled(candidate, left):
        asked.append(candidate)
        return _row(candidate, seconds=seconds[id(candidate)])

    found = Search(own, lambda: [slow, again, huge, fast], LIMITS).run(compiled)
    assert asked == [own, fast]
    assert found.best is not None
    assert found.best.candidate is fast
    assert found.ended == "all"
    assert found.skipped == {
        search.TOO_LARGE_STATE: 1,
        search.TOO_SLOW: 1,
        search.MORE_WORK: 1,
    }


def test_what_needs_more_room_than_one_that_is_too_large_is_left_out():
    much, less = _candidate(), _candidate(remat="save_dispatch", seconds=1.1)
    least = _candidate(remat="full", seconds=1.2)
    kinds = {id(less): "too large", id(least): "crashed"}
    asked = []

    def compiled(candidate, left):
        asked.append(candidate)
        return _row(candidate, kind=kinds[id(candidate)], room=17)

    found = Search(less, lambda: [much, least], LIMITS).run(compiled)
    assert asked == [less, least]
    assert found.skipped == {search.MORE_ROOM: 1}
    assert found.best is None
    assert [row.fits for row in found.rows] == [False, False]


def test_one_part_may_fit_where_two_are_too_large_with_their_sum_of_gradients():
    two, one = _candidate(parts=2), _candidate(parts=1, seconds=1.1)

    def compiled(candidate, left):
        kind = "too large" if candidate is two else None
        return _row(candidate, kind=kind, room=17 if kind else 15, seconds=1.2)

    found = Search(None, lambda: [two, one], LIMITS).run(compiled)
    assert found.best is not None
    assert found.best.candidate is one


def test_program_that_the_compiler_took_may_still_be_too_large():
    assert _row(_candidate(), seconds=1.0, room=15.4).fits
    assert not _row(_candidate(), seconds=1.0, room=15.6).fits
    assert not _row(_candidate(), kind="too large", room=15.4).fits


@pytest.mark.parametrize(
    ("limits", "ended", "compiled_ones"),
    [
        (Limits(seconds=25.0, device_bytes=16 * GIB), "time", 3),
        (Limits(seconds=99.0, device_bytes=16 * GIB, candidates=2), "count", 2),
        (Limits(seconds=99.0, device_bytes=16 * GIB), "interrupted", 4),
    ],
)
def test_search_keeps_what_it_has_when_it_is_stopped(limits, ended, compiled_ones):
    clock = itertools.count(0.0, 10.0)
    now = [0.0]

    def compiled(candidate, left):
        now[0] = next(clock) + 10.0
        if now[0] > 40.0:
            raise KeyboardInterrupt
        return _row(candidate, kind="crashed")

    others = [_candidate(model=8 * number) for number in range(2, 9)]
    found = Search(None, lambda: others, limits, clock=lambda: now[0]).run(compiled)
    assert found.ended == ended
    assert len(found.rows) == compiled_ones
    assert len(found.rows) + found.waiting == 7


def test_guess_is_corrected_by_what_came_of_the_nearest():
    crowded, slow = _candidate(room=2), _candidate(model=16, seconds=2.0)
    rows = [_row(crowded, kind="too large", room=20), _row(slow, seconds=3.0, room=2.5)]
    guess = Guess(rows)
    # Beside 2 GiB of state the compiler needed 18, where 2 had been guessed.
    assert guess.bytes(_candidate(remat="full", room=1)) == (1 + 9) * GIB
    assert guess.bytes(_candidate(model=16, remat="full", room=1)) == (1 + 1.5) * GIB
    assert guess.seconds(_candidate(model=16, remat="full", seconds=4.0)) == 6.0
    # The nearest to it differs in what is recomputed alone.
    near = guess.hopeful_seconds(_candidate(model=16, remat="full", seconds=4.0))
    assert near == pytest.approx(6.0 * 0.99)
    assert Guess([]).hopeful_seconds(slow) == Guess([]).seconds(slow) == 2.0
