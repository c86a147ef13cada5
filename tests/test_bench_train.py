"""The benchmark of training: what it takes and what it writes, not how long."""

import json

import numpy as np
import pytest

import bench_train
import bench_train_start
import bench_train_steps
from gshard_train.monitoring.utilisation import step_flops


class Step:
    """Stands for a compiled step: counts, and keeps the states that it was given."""

    def __init__(self):
        self.given = []

    def lower(self, state, batch):
        raise AssertionError

    def __call__(self, state, batch):
        self.given.append(float(state))
        return state + 1, {"loss": state}


def test_the_loop_and_the_bare_step_take_turns_with_states_of_their_own():
    step = Step()
    turns = bench_train_steps._Turns(step, 3)
    state = np.float32(0)
    for _ in range(7):
        state, _ = turns(state, {})
    bare = [0.0, 1.0, 2.0], [3.0, 4.0, 5.0]
    assert step.given == [0.0, 1.0, 2.0, *bare[0], 3.0, 4.0, 5.0, *bare[1], 6.0]
    assert (len(turns.loop), len(turns.bare)) == (2, 2)


@pytest.mark.parametrize("width", [64, 256])
def test_the_dense_model_does_the_work_that_a_token_of_the_other_does(width):
    sizes = {"embed": width, "num_heads": width // 32}
    experts = bench_train_steps.quickstart("unused", mlp=4 * width, **sizes)
    dense = bench_train_steps.quickstart("unused", mlp=6 * width, num_experts=0, **sizes)
    router = 3 * 2 * width * 8 * (256 * 12 + 256 * 8)  # one layer of each side has experts
    counts = {"source_tokens": 256 * 12, "target_tokens": 256 * 8}
    lengths = {"source_length": 12, "target_length": 8}
    flops = [step_flops(each.model, **counts, **lengths) for each in (experts, dense)]
    assert flops[0] - router == flops[1]


def test_the_last_line_is_json(monkeypatch, capsys):
    times = {"loop": [1.02, 2.0, 3.0], "bare": [1.0, 2.0, 3.0]}
    monkeypatch.setattr(bench_train_steps, "loop_and_bare", lambda *_, **__: times)
    pair = {"experts": [1.2, 1.0], "dense": [1.0, 1.0]}, 1.01
    monkeypatch.setattr(bench_train_steps, "experts_and_dense", lambda *_, **__: pair)
    starts = [("--help", 0.5, 1.5), ("first step of a run that goes on", 9.0, None)]
    monkeypatch.setattr(bench_train_start, "measure", lambda *_, **__: iter(starts))
    bench_train.main(["--widths=64"])
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {
        "loop": {"ratio_without_reading": 1.0, "ratio": 1.0},
        "experts": {"64": {"ratio": 1.1, "flops_ratio": 1.01}},
        "start": {"--help": 0.5, "first step of a run that goes on": 9.0},
    }


def test_arguments_that_cannot_be_are_refused(capsys):
    for argument, said in {
        "--sections=loop,stop": "stop: no such section; there are loop, experts, start",
        "--widths=50": "50: give multiples of 32",
    }.items():
        with pytest.raises(SystemExit):
            bench_train.main([argument])
        assert said in capsys.readouterr().err
