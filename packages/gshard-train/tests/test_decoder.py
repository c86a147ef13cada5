"""The decoder on the real model: any search, any devices, any batch gives the same translations."""

import dataclasses
import re

import jax
import numpy as np
import pytest

from gshard_annotate import DEFAULT_RULES, make_mesh
from gshard_train import state
from gshard_train.decode import BeamSearch, Sampling
from gshard_train.decoding import fingerprint
from gshard_train.decoding.decoder import Decoder, widths
from gshard_train.decoding.fingerprint import digest
from gshard_train.errors import UserError
from gshard_train.experiment import Experiment, prepare
from gshard_train.measuring.held_out import Example
from gshard_train.optimizer import adam

LENGTHS = {"inputs": 9, "targets": 6}


def sentences(count: int) -> list[Example]:
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, LENGTHS["inputs"] + 1, count)
    return [
        Example(np.append(rng.integers(2, 23, n - 1), 1).astype(np.int32), "", "") for n in lengths
    ]


def experiment_on(mesh, tiny, **changes) -> Experiment:
    fields = {
        "model_dir": "never_written",
        "make_mesh": lambda: mesh,
        "model": tiny,
        "optimizer": adam(1e-3),
        "make_feed": None,
        "mixture_or_task_name": "none",
        "task_feature_lengths": LENGTHS,
        "batch_size": 8,
    }
    return Experiment(**(fields | changes))


@pytest.fixture(scope="module")
def params(model):
    """Parameters whose next token hangs on the source and is seldom the end."""
    params = jax.tree.map(np.asarray, model[1])
    rng = np.random.default_rng(3)
    output_MV = rng.normal(size=params["output"].shape).astype(np.float32)
    output_MV[:, 1] *= 0.1
    return params | {"output": output_MV}


def decoder_and_params(mesh, tiny, params, search, batch_size=8):
    experiment = experiment_on(mesh, tiny)
    prepared = prepare(experiment)
    shardings = state.shardings(prepared.model, prepared.optimizer, DEFAULT_RULES, mesh).params
    decoder = Decoder(experiment, prepared, search, batch_size=batch_size)
    return decoder, jax.device_put(params, shardings)


@pytest.fixture(scope="module")
def alone(one_device, tiny, params):
    """One device's beam search, compiled once."""
    return decoder_and_params(one_device, tiny, params, BeamSearch(beams=3))


@pytest.fixture(scope="module")
def expected(alone):
    """Its translations of 19 sentences, whose third batch is not full."""
    return alone[0].decode(alone[1], sentences(19), progress=False)


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert (one.tokens, one.truncated) == (other.tokens, other.truncated)
        assert one.score == pytest.approx(other.score, abs=1e-5)


def test_the_flat_beam_finds_what_moved_keys_and_values_find(one_device, tiny, params, expected):
    assert len({tuple(hypothesis.tokens) for hypothesis in expected}) > 6
    decoder, on_mesh = decoder_and_params(
        one_device, tiny, params, BeamSearch(beams=3, kept="flat")
    )
    assert_same(decoder.decode(on_mesh, sentences(19), progress=False), expected)


@pytest.mark.parametrize(
    ("axes", "batch_size"),
    [
        ((2, 4), 8),
        pytest.param((1, 2), 16, marks=pytest.mark.slow),
        pytest.param((2, 2), 24, marks=pytest.mark.slow),
    ],
)
def test_devices_and_size_of_the_batch_change_no_translation(
    axes, batch_size, tiny, params, expected
):
    data, expert = axes
    mesh = make_mesh({"data": data, "expert": expert}, devices=jax.devices()[: data * expert])
    search = BeamSearch(beams=3)
    decoder, on_mesh = decoder_and_params(mesh, tiny, params, search, batch_size)
    assert_same(decoder.decode(on_mesh, sentences(19), progress=False), expected)


def test_a_sentence_is_translated_alike_with_any_others(alone, expected):
    decoder, params = alone
    some = [18, 3, 11]
    found = decoder.decode(params, [sentences(19)[place] for place in some], progress=False)
    assert_same(found, [expected[place] for place in some])


def test_what_goes_on_after_a_stop_is_the_same_to_the_last_bit(alone, expected):
    decoder, params = alone
    examples = sentences(19)
    first, *_ = decoder.decode_batches(params, examples)
    rest = list(decoder.decode_batches(params, examples, done=set(first)))
    assert [len(batch) for batch in rest] == [8, 3]
    found = dict(first)
    for batch in rest:
        found.update(batch)
    assert [found[place] for place in range(19)] == expected


def test_draws_follow_the_number_in_the_task(one_device, tiny, params):
    search = Sampling(temperature=2.0, seed=1)
    decoder, on_mesh = decoder_and_params(one_device, tiny, params, search)
    examples = sentences(5)
    found = decoder.decode(on_mesh, examples, progress=False)
    turned = decoder.decode(on_mesh, examples[::-1], progress=False, numbers=[4, 3, 2, 1, 0])
    assert_same(turned[::-1], found)
    others = decoder.decode(on_mesh, examples, progress=False, numbers=range(5, 10))
    assert [one.tokens for one in others] != [one.tokens for one in found]


def test_batches_hold_every_sentence_once_the_longest_first(alone):
    decoder, _ = alone
    examples = sentences(19)
    plan = decoder.plan(examples)
    assert sorted(place for batch in plan for place in batch.places) == list(range(19))
    sizes = [len(examples[place].tokens_T) for batch in plan for place in batch.places]
    assert sizes == sorted(sizes, reverse=True)
    assert [len(batch.places) for batch in plan] == [8, 8, 3]


def test_widths_are_few_and_end_with_the_longest():
    assert widths(9) == [9]
    assert widths(16) == [16]
    assert widths(100) == [13, 25, 50, 100]
    assert widths(1024) == [16, 32, 64, 128, 256, 512, 1024]


def test_what_cannot_be_decoded_is_said_before(alone, mesh, tiny):
    long = Example(np.ones(12, np.int32), "", "")
    wrong = "1 sentences are longer than TASK_FEATURE_LENGTHS['inputs']=9, such as number 2 with 12"
    with pytest.raises(UserError, match=re.escape(wrong)):
        alone[0].plan([*sentences(2), long])
    experiment = experiment_on(mesh, dataclasses.replace(tiny, num_groups=24), batch_size=24)
    prepared = prepare(experiment)
    expected = (
        "decoding's batch_size=32 cannot be divided by the 24 parts of mesh (8 parts) and "
        "num_groups=24 together (32 % 24 = 8); use 24 or 48"
    )
    with pytest.raises(UserError, match=f"^{re.escape(expected)}$"):
        Decoder(experiment, prepared, BeamSearch(), batch_size=32)


def test_a_digest_knows_bits_and_places_on_any_devices(params, mesh, one_device, tiny):
    table_VM = params["output"]
    found = {digest({"output": array}) for array in (table_VM, table_VM[::-1], table_VM[:, ::-1])}
    changed = table_VM.copy()
    changed[3, 4] = np.nextafter(changed[3, 4], 9)
    found |= {digest({"output": changed}), digest({"output": table_VM.astype(np.float16)})}
    assert len(found) == 5
    of_devices = [
        digest(decoder_and_params(each, tiny, params, BeamSearch())[1])
        for each in (mesh, one_device)
    ]
    assert of_devices[0] == of_devices[1]


def test_a_digest_of_the_next_checkpoint_compiles_nothing(params):
    digest(params)
    before = fingerprint._sums._cache_size()
    digest(jax.tree.map(lambda leaf: leaf + 1, params))
    assert fingerprint._sums._cache_size() == before
