import itertools
import logging
import re
import shutil
import threading
import tracemalloc

import numpy as np
import pytest

from gshard_m4.batches import Counts, Examples
from gshard_m4.feed import Packing, training_feed
from gshard_m4.mixture import find
from gshard_m4.prepared import write_prepared
from gshard_m4.sample.corpus import corpus
from gshard_m4.vocabulary import Vocabulary, train

CODES = ["cy", "de", "ja", "km", "sd"]
LENGTHS = {"inputs": 32, "targets": 19}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Five languages of the sample as a prepared directory, and one without training text."""
    path = tmp_path_factory.mktemp("prepared")
    texts = {code: {"train": corpus().pairs[code]["train"]} for code in CODES}
    write_prepared(path, texts | {"zu": {"test": [("a", "b")]}}, name="tiny")
    (path / "vocabulary").mkdir()
    shutil.copy(corpus().source_vocabulary, path / "vocabulary" / "source.model")
    shutil.copy(corpus().target_vocabulary, path / "vocabulary" / "target.model")
    return path


@pytest.fixture
def make_feed(folder):
    made = []

    def make(**changed):
        options = {
            "mixture_or_task_name": "m4_all_en",
            "task_feature_lengths": LENGTHS,
            "batch_size": 24,
            "seed": 3,
            "data_dir": folder,
        }
        made.append(training_feed(**options | changed))
        return made[-1]

    yield make
    for one in made:
        one.close()


def assert_equal(a, b):
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name])


def joined(blocks):
    return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}


def texts(batch, vocabulary, name="encoder_input_tokens"):
    return [vocabulary.decode(row) for row in batch[name]]


def test_rows_are_the_text_of_the_directory_at_the_mixtures_rates(folder):
    found = find("m4_all_en", data_dir=folder)
    examples = Examples(found, seed=0)
    language_of = {pair: code for code in CODES for pair in found.corpus.pairs[code]["train"]}
    counts = dict.fromkeys(found.rates, 0)
    for pair in examples[0 : 1 << 14]:
        counts[language_of[pair]] += 1
    shares = {code: n / (1 << 14) for code, n in counts.items()}
    assert shares == pytest.approx(found.rates, abs=3e-3)


def test_a_prepared_directory_feeds_what_the_same_text_in_memory_does(make_feed, folder):
    rows = find("m4_all_en", data_dir=folder)
    source = Vocabulary(corpus().source_vocabulary)
    batch = next(make_feed(task_feature_lengths={"inputs": 400, "targets": 300}))
    pairs = Examples(rows, seed=3)[0:24]
    assert texts(batch, source) == [
        source.decode(source.encode_batch([text])[0]) for text, _ in pairs
    ]


def test_other_text_is_noticed_by_the_manifest(make_feed, folder, tmp_path):
    texts = {code: {"train": corpus().pairs[code]["train"]} for code in CODES}
    texts["de"] = {"train": [("Haus", "house"), *texts["de"]["train"][1:]]}
    write_prepared(tmp_path / "other", texts, name="tiny")
    options = {"vocabulary_dir": folder / "vocabulary"}
    first = make_feed(**options).identity()
    other = make_feed(**options, data_dir=tmp_path / "other").identity()
    assert {name for name in first if other[name] != first[name]} == {"text of de"}


SMALL = Packing(window_rows=4, window_examples=12)


@pytest.mark.parametrize(
    ("packing", "count"),
    [(None, 2), (None, 3), (None, 8), (SMALL, 2), (SMALL, 3), (SMALL, 8), (Packing(), 2)],
)
def test_any_number_of_processes_holds_the_same_global_batches(make_feed, count, packing):
    whole = make_feed(packing=packing)
    parts = [make_feed(packing=packing, process_index=p, process_count=count) for p in range(count)]
    assert {part.examples_per_batch for part in parts} == {whole.examples_per_batch}
    for _ in range(3):
        assert_equal(joined([next(part) for part in parts]), next(whole))


@pytest.mark.parametrize("packing", [None, Packing(window_rows=6, window_examples=20)])
def test_the_number_of_processes_may_change_between_two_steps(make_feed, packing):
    straight = make_feed(packing=packing)
    state = {"next_index": 0}
    for count in (1, 8, 3, 2, 1):
        parts = [
            make_feed(packing=packing, process_index=p, process_count=count) for p in range(count)
        ]
        for part in parts:
            part.set_state(state)
        for _ in range(2):
            assert_equal(joined([next(part) for part in parts]), next(straight))
        states = [part.get_state() for part in parts]
        assert all(one == states[0] for one in states)
        state = states[0]
        for part in parts:
            part.close()
    assert state == {"next_index": 10}


def test_packed_rows_hold_the_pairs_of_their_window(make_feed, folder):
    made = make_feed(packing=Packing(window_rows=12, window_examples=40))
    assert made.examples_per_batch == 80
    source = Vocabulary(corpus().source_vocabulary)
    examples = Examples(find("m4_all_en", data_dir=folder), seed=3)
    next(made)
    batch = next(made)
    for w in range(2):
        rows = slice(12 * w, 12 * (w + 1))
        segments, ids = batch["encoder_segment_ids"][rows], batch["encoder_input_tokens"][rows]
        found = [
            tuple(ids[r][segments[r] == s].tolist())
            for r in range(12)
            for s in range(1, segments[r].max() + 1)
        ]
        pairs = examples[80 + 40 * w : 80 + 40 * (w + 1)]
        expected = [
            (*row[: LENGTHS["inputs"] - 1], 1)
            for row in source.encode_batch([text for text, _ in pairs])
        ]
        for one in found:
            expected.remove(one)
        assert len(found) + len(expected) == 40


def test_what_packing_drops_and_fills_is_counted(make_feed):
    made = make_feed(packing=Packing(), batch_size=240)
    assert made.packing_report() == Counts()
    batches = [next(made) for _ in range(4)]
    report = made.packing_report()
    assert report.rows == 960
    assert report.examples == 4 * made.examples_per_batch
    kept = sum(batch["encoder_segment_ids"].max(axis=1).sum() for batch in batches)
    assert report.dropped == report.examples - kept
    filled = sum((batch["decoder_loss_weights"]).sum() for batch in batches)
    assert report.target_fill == pytest.approx(filled / (960 * LENGTHS["targets"]))
    assert report.input_fill > 0.85
    assert report.target_fill > 0.85
    assert report.overflow <= 0.005


def test_too_many_examples_for_their_rows_are_counted_as_dropped(make_feed):
    made = make_feed(packing=Packing(window_rows=24, window_examples=300))
    next(made)
    report = made.packing_report()
    assert report.examples == 300
    assert report.overflow == report.dropped / 300 > 0.2


def test_cut_text_is_counted(make_feed):
    made = make_feed(task_feature_lengths={"inputs": 4, "targets": 300})
    batch = next(made)
    report = made.packing_report()
    assert 0 < report.cut <= (batch["encoder_input_tokens"][:, 3] == 1).sum()
    assert report.dropped == 0
    assert str(report) == (
        f"24 examples for 24 rows: inputs {report.input_fill:.1%} full, targets"
        f" {report.target_fill:.1%}; 0.00% of the examples dropped, {report.cut} sides cut"
    )


@pytest.mark.parametrize("packing", [None, SMALL])
def test_the_names_of_the_arrays_are_told_beforehand(make_feed, packing):
    made = make_feed(packing=packing)
    assert made.features == tuple(next(made))


def test_languages_without_training_text_are_left_out_by_name(make_feed, caplog):
    with caplog.at_level(logging.WARNING, "gshard_m4.feed"):
        make_feed()
    assert [record.getMessage() for record in caplog.records] == [
        "training_feed: m4_all_en: no training text in zu"
    ]
    message = "training_feed: mixture 'm4_zu_en': no training text in zu"
    with pytest.raises(ValueError, match=f"^{message}$"):
        make_feed(mixture_or_task_name="m4_zu_en")


def test_lengths_that_do_not_go_together_are_named_with_those_that_do(make_feed, caplog):
    with caplog.at_level(logging.WARNING, "gshard_m4.feed"):
        lengths = {"inputs": 64, "targets": 64}
        make_feed(
            mixture_or_task_name="m4_de_en",
            task_feature_lengths=lengths,
            batch_size=256,
            packing=Packing(),
        )
        make_feed(mixture_or_task_name="m4_de_en", packing=Packing(window_rows=8))
    messages = [record.getMessage() for record in caplog.records]
    assert messages == [
        "training_feed: m4_de_en: packing fills 93% of inputs and 63% of targets:"
        " 64 inputs go with 43 targets in this text",
        "training_feed: m4_de_en: packing fills 69% of inputs and 76% of targets:"
        " windows of 8 rows are small, a larger batch_size fills better",
    ]


def test_a_source_tag_is_one_piece_at_the_start(folder, tmp_path, make_feed):
    shutil.copytree(folder, tmp_path / "tagged")
    tags = ["<2cy>", "<2de>"]
    lines = [text for code in ("cy", "de") for text, _ in corpus().pairs[code]["train"]]
    train(
        lines,
        tmp_path / "tagged" / "vocabulary" / "source.model",
        size=300,
        user_defined_symbols=tags,
    )
    name = "m4_cy_de_en"
    made = make_feed(
        mixture_or_task_name=name, data_dir=tmp_path / "tagged", source_tags=True, batch_size=300
    )
    source = Vocabulary(tmp_path / "tagged" / "vocabulary" / "source.model")
    batch = next(made)
    rows = find(name, data_dir=tmp_path / "tagged")
    pairs = Examples(rows, seed=3)[0:300]
    german = {source for source, _ in rows.corpus.pairs["de"]["train"]}
    expected = ["<2de>" if text in german else "<2cy>" for text, _ in pairs]
    assert [text.split(" ")[0] for text in texts(batch, source)] == expected
    assert set(expected) == set(tags)
    plain = make_feed(mixture_or_task_name=name, data_dir=tmp_path / "tagged")
    assert not any(text.startswith("<2") for text in texts(next(plain), source))


def test_tags_that_the_vocabulary_lacks_are_refused(make_feed, folder):
    message = (
        f"training_feed: source_tags: '{folder}/vocabulary/source.model' has no piece <2cy>, <2de>,"
        " <2ja>, <2km>, <2sd>; learn a vocabulary with them (gshard-m4 vocabulary --tags)"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        make_feed(source_tags=True)


def test_rates_too_small_to_be_seen_are_named(tmp_path, folder):
    path = tmp_path / "uneven"
    write_prepared(path, {"de": {"train": [("a", "b")]}, "fr": {"train": [("a", "b")] * 99}},
                   name="uneven")  # fmt: skip
    shutil.copytree(folder / "vocabulary", path / "vocabulary")
    message = (
        "training_feed: de would have less than one of 65536 examples and never be seen; raise"
        " temperature or minimum_share, or leave them out by name"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        training_feed(
            mixture_or_task_name="m4_all_en",
            task_feature_lengths=LENGTHS,
            batch_size=8,
            seed=0,
            data_dir=path,
            temperature=0.3,
        )


def test_all_faults_are_named_at_once(make_feed, tmp_path):
    message = (
        f"training_feed: {tmp_path}: has no manifest.json, so it is unfinished or not prepared; run"
        " gshard-m4 prepare to its end; packing: window_rows 5 does not divide batch_size 24;"
        " packing: window_examples 0 is not positive"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        make_feed(data_dir=tmp_path, packing=Packing(window_rows=5, window_examples=0))


def test_rows_too_long_to_pack_are_refused(make_feed):
    lengths = {"inputs": 65536, "targets": 9}
    message = f"training_feed: packing: rows have at most 32768 tokens, got {lengths}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        make_feed(task_feature_lengths=lengths, packing=Packing())


def test_a_directory_without_a_vocabulary_says_what_makes_one(make_feed, folder, tmp_path):
    shutil.copytree(folder, tmp_path / "bare")
    shutil.rmtree(tmp_path / "bare" / "vocabulary")
    message = (
        f"training_feed: {tmp_path}/bare has no vocabulary/source.model and"
        f" vocabulary/target.model; run gshard-m4 vocabulary {tmp_path}/bare"
    )
    with pytest.raises(FileNotFoundError, match=f"^{re.escape(message)}$"):
        make_feed(data_dir=tmp_path / "bare")


def test_a_vocabulary_elsewhere(make_feed, folder, tmp_path):
    bare, models = tmp_path / "bare", tmp_path / "models"
    shutil.copytree(folder, bare)
    (bare / "vocabulary").rename(models)
    moved = make_feed(data_dir=bare, vocabulary_dir=models)
    assert_equal(next(moved), next(make_feed()))
    moved.close()
    (models / "target.model").unlink()
    message = (
        f"training_feed: {models} has no target.model;"
        f" run gshard-m4 vocabulary {bare} --output={models}"
    )
    with pytest.raises(FileNotFoundError, match=f"^{re.escape(message)}$"):
        make_feed(data_dir=bare, vocabulary_dir=models)


def test_few_threads_while_reading_and_none_afterwards(make_feed):
    before = threading.active_count()
    made = make_feed(packing=Packing())
    for _ in range(3):
        next(made)
    assert threading.active_count() - before <= 4
    made.close()


def test_memory_does_not_grow_with_what_was_read(make_feed):
    made = make_feed()
    for batch in itertools.islice(made, 20):
        assert batch["encoder_input_tokens"].shape == (24, 32)
    tracemalloc.start()
    for _ in itertools.islice(made, 30):
        pass
    grown, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown < 1_000_000
