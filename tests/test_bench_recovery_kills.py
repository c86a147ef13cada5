"""What the benchmark of kills would say of runs that lose, repeat or change something."""

import json

import pytest

from bench_recovery_kills import Found, Run, Start, _compare

FED = {0: ["de 1, fr 2", "de 3"], 1: ["is 4, de 5", ""], 2: ["fr 6", "fr 7, is 8"], 3: ["is 9"]}
STEPS = {step: {"loss": 9.0 - step} for step in (1, 2, 3)}
WHOLE = Start(FED, STEPS)


def found(*starts: Start) -> Found:
    counted = Found()
    _compare(list(starts), WHOLE, 3, counted)
    return counted


def start(first: int, steps: list[int], **changed: list[str]) -> Start:
    fed = {i: FED[i] for i in range(first, 4)} | {int(i[1:]): new for i, new in changed.items()}
    return Start(fed, {step: STEPS[step] for step in steps})


def test_starts_that_go_on_where_one_was_killed_lose_nothing():
    one = found(start(0, [1, 2]), start(1, [2]), start(2, [3]))
    assert (one.steps_compared, one.steps_that_differ) == (4, 0)
    assert (one.examples, one.examples_lost, one.examples_repeated) == (8, 0, 0)


def test_what_is_lost_repeated_or_another_is_counted():
    one = found(start(0, [1]), start(1, [2, 3], i2=["de 1", "is 8"]))
    assert (one.examples_lost, one.examples_repeated) == (2, 1)
    assert found(Start(FED, {**STEPS, 2: {"loss": 0.0}})).steps_that_differ == 1
    with pytest.raises(SystemExit, match="a start went on from 2, which none before it reached"):
        found(start(0, [1]), start(2, [3]))


def test_the_trail_of_starts_is_read_in_their_order(tmp_path):
    run = Run(tmp_path, "killed", 3)
    figures = ("loss", "total_loss", "accuracy", "gradient_norm", "update_norm", "balance_loss")
    noted = [
        {
            "start": 30,
            "event": "/jax/compilation_cache/cache_hits",
        },  # killed before its first batch
        {"start": 20, "fed": 0, "names": ["de 1"]},
        {"start": 20, "step": 1, **dict.fromkeys(figures, 0.5), "step_seconds": 3.0},
        {"start": 10, "fed": 1, "names": ["fr 2"]},
    ]
    run.trail.write_text("".join(json.dumps(line) + "\n" for line in noted))
    first, second = run.starts()
    assert first == Start({0: ["de 1"]}, {1: dict.fromkeys(figures, 0.5)})
    assert second == Start({1: ["fr 2"]}, {})
