import hashlib
import json
import re
import shutil
import threading

import numpy as np
import pytest

from gshard_m4 import feed, mixture
from gshard_m4.batches import Examples
from gshard_m4.order import Order
from gshard_m4.sample.corpus import corpus
from gshard_m4.vocabulary import EOS, Vocabulary

LENGTHS = {"inputs": 9, "targets": 7}


@pytest.fixture
def make_feed():
    made = []

    def make(**changed):
        options = {
            "mixture_or_task_name": "m4_sample",
            "task_feature_lengths": LENGTHS,
            "batch_size": 24,
            "seed": 3,
            "process_index": 0,
            "process_count": 1,
        }
        made.append(feed.training_feed(**options | changed))
        return made[-1]

    yield make
    for one in made:
        one.close()


def assert_equal(a, b):
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name])


def test_a_batch_has_the_arrays_that_t5x_names(make_feed):
    batch = next(make_feed())
    assert {name: (a.shape, a.dtype.name) for name, a in batch.items()} == {
        "encoder_input_tokens": ((24, 9), "int32"),
        "decoder_target_tokens": ((24, 7), "int32"),
        "decoder_input_tokens": ((24, 7), "int32"),
        "decoder_loss_weights": ((24, 7), "int32"),
    }
    targets = batch["decoder_target_tokens"]
    assert (batch["decoder_input_tokens"][:, 0] == 0).all()
    assert (batch["decoder_input_tokens"][:, 1:] == targets[:, :-1]).all()
    assert (batch["decoder_loss_weights"] == (targets != 0)).all()


def test_rows_are_pairs_of_the_training_text_cut_with_their_end_kept(make_feed):
    made = make_feed(mixture_or_task_name="m4_sample_de_en", batch_size=300)
    source = Vocabulary(corpus().source_vocabulary)
    target = Vocabulary(corpus().target_vocabulary)
    assert made.vocabulary_sizes == {"inputs": source.size, "targets": target.size}
    known = {
        (tuple(source.encode_batch([s])[0][:8]), tuple(target.encode_batch([e])[0][:6]))
        for s, e in corpus().pairs["de"]["train"]
    }
    batch = next(made)
    cut = 0
    for x, y in zip(batch["encoder_input_tokens"], batch["decoder_target_tokens"], strict=True):
        x, y = x[x != 0].tolist(), y[y != 0].tolist()
        assert (x[-1], y[-1]) == (EOS, EOS)
        assert (tuple(x[:-1]), tuple(y[:-1])) in known
        cut += len(x) == 9
    assert cut


@pytest.mark.parametrize(
    ("changed", "index", "sha256"),
    [
        (
            {"task_feature_lengths": {"inputs": 12, "targets": 8}, "batch_size": 256, "seed": 0},
            0,
            "13993c8c024284aacf9f57407cf3b26deed43456f8d94ae316b6b9d7a0d66947",
        ),
        ({}, 70000, "67d26f6272ba1d2c5dce7d4d86fcac8c0a847d1f7b6e2dd3fc4cc6a79ea2179b"),
        (
            {"mixture_or_task_name": "m4_sample_de_en"},
            0,
            "0b5ec05c6326b05991228f918cfc0d65b9a5730913c3db4b52af77634ab738da",
        ),
        (
            {"packing": feed.Packing(), "task_feature_lengths": {"inputs": 64, "targets": 48}},
            5,
            "06877b54f1cc63ad4603446009051522dcfc8c97bc73ada37c307538fae60be0",
        ),
    ],
)
def test_batches_of_the_sample_never_change(make_feed, changed, index, sha256):
    # A run that is resumed with a later version goes on with the same batches.
    made = make_feed(**changed)
    made.set_state({"next_index": index})
    digest = hashlib.sha256()
    for _ in range(3):
        batch = next(made)
        for name in sorted(batch):
            array = batch[name]
            digest.update(f"{name}{(array.shape, array.dtype)}".encode() + array.tobytes())
    assert digest.hexdigest() == sha256


def test_shares_are_the_mixtures_rates():
    found = mixture.find("m4_sample")
    pairs = Examples(found, seed=0)
    language_of = {
        id(pair): language
        for language in found.rates
        for pair in found.corpus.pairs[language]["train"]
    }
    counts = dict.fromkeys(found.rates, 0)
    for i in range(256):
        for pair in pairs[256 * i : 256 * (i + 1)]:
            counts[language_of[id(pair)]] += 1
    shares = {language: n / 256**2 for language, n in counts.items()}
    assert shares == pytest.approx(found.rates, abs=2 / 256**2)


def test_a_batch_depends_on_the_seed_and_its_index_alone(make_feed):
    first, again, other = make_feed(), make_feed(), make_feed(seed=4)
    for _ in range(3):
        batch = next(first)
        assert_equal(batch, next(again))
        assert (batch["encoder_input_tokens"] != next(other)["encoder_input_tokens"]).any()


@pytest.mark.parametrize("count", [2, 3, 8])
def test_processes_hold_the_blocks_of_the_same_global_batches(make_feed, count):
    whole = make_feed()
    parts = [make_feed(process_index=p, process_count=count) for p in range(count)]
    for _ in range(4):
        blocks = [next(part) for part in parts]
        joined = {name: np.concatenate([b[name] for b in blocks]) for name in blocks[0]}
        assert_equal(joined, next(whole))


def test_a_saved_position_gives_the_batches_that_would_have_come(make_feed):
    straight = make_feed()
    batches = [next(straight) for _ in range(12)]
    stopped = make_feed()
    for _ in range(5):
        next(stopped)
    state = json.loads(json.dumps(stopped.get_state()))
    assert state == {"next_index": 5}
    resumed = make_feed(process_index=1, process_count=2)
    resumed.set_state(state)
    for batch in batches[5:]:
        assert_equal({k: a[12:] for k, a in batch.items()}, next(resumed))
    assert resumed.get_state() == {"next_index": 12}
    straight.set_state(state)
    assert_equal(next(straight), batches[5])


def test_repeated_examples_are_those_that_were_given_out_before(make_feed):
    described = mixture.find("m4_sample")
    sizes = [len(described.corpus.pairs[code]["train"]) for code in described.rates]
    for batches in (0, 400, 4000):
        count = 24 * batches
        drawn = Order(sizes, [*described.rates.values()], seed=3)[0:count] if count else ([], [])
        repeated = count - len(set(zip(*map(list, drawn), strict=True)))
        share = make_feed().repeated_share({"next_index": batches})
        assert share == pytest.approx(repeated / max(1, count), abs=2e-3)
    assert share > 0.05


@pytest.mark.parametrize("state", [{}, {"next_index": -1}, {"next_index": 1, "seed": 3}])
def test_positions_of_something_else_are_refused(make_feed, state):
    message = f"set_state: expected {{'next_index': index >= 0}}, got {state}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        make_feed().set_state(state)


def test_few_threads_and_none_after_close(make_feed):
    before = threading.active_count()
    made = make_feed()
    next(made)
    assert threading.active_count() - before <= 3
    made.close()
    with pytest.raises(ValueError, match="closed"):
        next(made)


def test_all_faults_of_the_arguments_are_named_at_once(make_feed):
    message = (
        "training_feed: unknown mixture or task 'm4_sampel'; did you mean m4_sample?;"
        " task_feature_lengths must be {'inputs': n, 'targets': m} with n, m >= 2,"
        " got {'inputs': 9}; batch_size 24 is not a multiple of 7 processes: 21 or 28 are"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        make_feed(
            mixture_or_task_name="m4_sampel",
            task_feature_lengths={"inputs": 9},
            process_count=7,
        )


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"process_index": 2, "process_count": 2}, "process_index 2 is not in 0..1"),
        ({"batch_size": 0}, "batch_size 0 is not positive"),
        (
            {"batch_size": 3, "process_count": 8},
            "batch_size 3 is not a multiple of 8 processes: 8 is",
        ),
        (
            {"task_feature_lengths": LENGTHS | {"extra": 4}},
            "task_feature_lengths must be {'inputs': n, 'targets': m} with n, m >= 2,"
            " got {'inputs': 9, 'targets': 7, 'extra': 4}",
        ),
    ],
)
def test_each_fault_is_named(make_feed, changed, message):
    with pytest.raises(ValueError, match=f"^training_feed: {re.escape(message)}$"):
        make_feed(**changed)


def test_a_missing_vocabulary_is_named(make_feed, tmp_path, monkeypatch):
    shutil.copy(corpus().source_vocabulary, tmp_path / "source.model")
    missing = tmp_path / "target.model"
    found = mixture.find("m4_sample")
    broken = mixture.dataclasses.replace(
        found,
        corpus=mixture.dataclasses.replace(
            found.corpus,
            source_vocabulary=tmp_path / "source.model",
            target_vocabulary=missing,
        ),
    )
    monkeypatch.setattr(mixture, "find", lambda name, **options: broken)
    message = f"vocabulary: no file '{missing}'; give the path of a SentencePiece .model"
    with pytest.raises(FileNotFoundError, match=f"^{re.escape(message)}$"):
        make_feed()


@pytest.mark.parametrize("packing", [None, feed.Packing(window_rows=8, window_examples=40)])
def test_examples_are_named_in_the_rows_that_hold_them(make_feed, packing):
    changed = {"task_feature_lengths": {"inputs": 40, "targets": 30}, "packing": packing}
    whole, source = make_feed(**changed), Vocabulary(corpus().source_vocabulary)
    whole.set_state({"next_index": 2})
    names, batch = whole.examples({"next_index": 2}), next(whole)
    assert len(names) == 24
    for row, listed in zip(batch["encoder_input_tokens"], names, strict=True):
        expected = []
        for name in listed.split(", ") if listed else []:
            code, number = name.split()
            text = corpus().pairs[code]["train"][int(number)][0]
            expected += [*source.encode_batch([text])[0][:39], EOS]
        assert row[row != 0].tolist() == expected
    parts = [make_feed(**changed, process_index=p, process_count=4) for p in range(4)]
    assert [name for part in parts for name in part.examples({"next_index": 2})] == names


def test_an_identity_names_what_the_order_depends_on(make_feed, tmp_path):
    plain = make_feed(process_index=1, process_count=2).identity()
    assert json.loads(json.dumps(plain)) == plain == make_feed().identity()
    german = make_feed(mixture_or_task_name="m4_sample_de_en").identity()
    assert german["text of de"] == plain["text of de"]
    assert "text of fr" not in german
    for name in ("source.model", "target.model"):
        shutil.copy(corpus().source_vocabulary, tmp_path / name)
    for changed, differing in [
        ({"seed": 4}, {"seed"}),
        ({"batch_size": 12}, {"batch_size"}),
        ({"temperature": 2.0}, {"temperature"}),
        ({"task_feature_lengths": {"inputs": 9, "targets": 8}}, {"length of targets"}),
        ({"vocabulary_dir": tmp_path}, {"vocabulary of targets"}),
        (
            {"packing": feed.Packing(window_rows=8, window_examples=5)},
            {"packing.window_rows", "packing.window_examples"},
        ),
    ]:
        found = make_feed(**changed).identity()
        assert {name for name in plain if found[name] != plain[name]} == differing
