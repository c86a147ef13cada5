"""Seqio tasks of prepared directories and of other data sources."""

import importlib
import json
import logging
import re
import warnings
from typing import Any

import pytest

from gshard_m4 import mixture
from gshard_m4.input_error import InputError
from gshard_m4.prepared import write_prepared
from gshard_m4.sample.corpus import corpus
from gshard_m4.seqio_metrics import translation_metrics
from gshard_m4.vocabulary import EOS, Vocabulary, tag, train

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

LENGTHS = {"inputs": 16, "targets": 12}
WORDS = [f"{a} {b}" for a in ("rot", "grün", "blau", "klein") for b in ("Haus", "Boot", "Rad")]
# de and fr are high in M4, yi is low; oc is no language of M4; co has test rows only.
SIZES = {"de": 12, "fr": 40, "oc": 5, "yi": 3, "co": 0}


@pytest.fixture(scope="module")
def seqio():
    pytest.importorskip("seqio", reason="seqio comes with gshard-m4[seqio]")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("seqio")


@pytest.fixture
def tasks(seqio, monkeypatch):
    """gshard_m4.tasks, with registries that are empty for this test."""
    module = importlib.import_module("gshard_m4.tasks")
    registry = importlib.import_module("gshard_m4.tasks.registry")
    monkeypatch.setattr(seqio.TaskRegistry, "_REGISTRY", {})
    monkeypatch.setattr(seqio.MixtureRegistry, "_REGISTRY", {})
    monkeypatch.setattr(registry, "_REGISTERED", {})
    monkeypatch.setattr(mixture, "_DIRECTORIES", {})
    return module


def texts(sizes):
    return {
        code: {
            "train": [(f"{WORDS[i % 12]} {code}", f"line {i}", "made") for i in range(n)],
            "validation": [],
            "test": [(f"{WORDS[i]} \u2028 \u0085x", f"test {i}") for i in range(3)],
        }
        for code, n in sizes.items()
    }


def make(path, sizes=SIZES, tagged=()):
    write_prepared(path, texts(sizes), name="tiny")
    (path / "vocabulary").mkdir()
    learnt = [*WORDS, *"abcdefghijklmnopqrstuvwxyz0123456789", "line test", "\u2028"]
    tags = [tag(code) for code in tagged]
    for side in ("source", "target"):
        train(
            learnt,
            path / "vocabulary" / f"{side}.model",
            size=53 + len(tags) * (side == "source"),
            character_coverage=1.0,
            user_defined_symbols=tags if side == "source" else (),
        )
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make(tmp_path_factory.mktemp("a[1]*b"), tagged=[*SIZES])


def rows(task, split="test", **options):
    data = task.get_dataset(LENGTHS, split, shuffle=False, num_epochs=1, **options)
    return list(data.as_numpy_iterator())


def test_a_directory_gives_its_tasks_and_mixtures_at_the_rates_of_the_feed(tasks, seqio, folder):
    names = tasks.register_prepared(folder, lists=[("fra", "deu_Latn")])
    assert names == [
        *("m4_co_en", "m4_de_en", "m4_fr_en", "m4_oc_en", "m4_yi_en"),
        *("m4", "m4_all_en", "m4_high_en", "m4_low_en", "m4_fr_de_en"),
    ]
    for name in names[5:]:
        found = seqio.get_mixture_or_task(name)
        rates = {task.name: found.get_rate(task) for task in found.tasks}
        ours = mixture.find(name).rates
        assert rates == {f"m4_{code}_en": pytest.approx(rate) for code, rate in ours.items()}
    assert len(seqio.get_mixture_or_task("m4_all_en").tasks) == 4


def test_mixtures_draw_as_often_as_the_feed_from_each_language(tasks, seqio, folder):
    tasks.register_prepared(folder)
    found = seqio.get_mixture_or_task("m4_all_en")
    data = found.get_dataset(
        LENGTHS, "train", shuffle=True, seed=1, num_epochs=None, copy_pretokenized=True
    )
    drawn = [r["inputs_pretokenized"].decode()[-2:] for r in data.take(400).as_numpy_iterator()]
    for code, rate in mixture.find("m4_all_en").rates.items():
        assert drawn.count(code) / 400 == pytest.approx(rate, abs=0.08), code


def test_rows_keep_their_order_text_and_end_of_sentence(tasks, seqio, folder):
    tasks.register_prepared(folder)
    task = seqio.get_mixture_or_task("m4_co_en")
    assert (list(task.splits), task.num_input_examples("test")) == (["test"], 3)
    found = rows(task)
    assert [(r["inputs_pretokenized"].decode(), r["targets_pretokenized"].decode())
            for r in found] == texts(SIZES)["co"]["test"]  # fmt: skip
    source = Vocabulary(folder / "vocabulary" / "source.model")
    assert [row["inputs"].tolist() for row in found] == [
        [*ids, EOS] for ids in source.encode_batch([x for x, _ in texts(SIZES)["co"]["test"]])
    ]


def test_packing(tasks, seqio, folder):
    tasks.register_prepared(folder)
    data = seqio.get_mixture_or_task("m4_fr_en").get_dataset(
        {"inputs": 32, "targets": 24}, "train", shuffle=False, num_epochs=1
    )
    lengths = {"inputs": 32, "targets": 24}
    packed = list(
        seqio.EncDecFeatureConverter(pack=True)(data, lengths).as_numpy_iterator()
    )  # fmt: skip
    assert sum(row["encoder_segment_ids"].max() for row in packed) == 40
    assert len(packed) < 40


def test_source_tags_come_first_and_the_text_is_without_them(tasks, seqio, folder):
    tasks.register_prepared(folder, source_tags=True)
    row = rows(seqio.get_mixture_or_task("m4_yi_en"))[0]
    source = Vocabulary(folder / "vocabulary" / "source.model")
    text = texts(SIZES)["yi"]["test"][0][0]
    assert row["inputs_pretokenized"].decode() == text
    assert row["inputs"].tolist() == [*source.encode_batch([f"<2yi> {text}"])[0], EOS]


def test_cached_rows_are_read_as_seqio_writes_them(tasks, seqio, folder, tmp_path):
    """The files of seqio's cache tool, which needs apache-beam, written by hand."""
    import tensorflow as tf

    tasks.register_prepared(folder)
    task = seqio.get_mixture_or_task("m4_de_en")
    assert task.supports_caching
    cache = tmp_path / "m4_de_en"
    cache.mkdir()
    features = {name: {"shape": [None], "dtype": "int32"} for name in ("inputs", "targets")}
    info = {"num_shards": 1, "features": features, "seqio_version": seqio.__version__}
    (cache / "info.test.json").write_text(json.dumps(info))
    (cache / "stats.test.json").write_text(json.dumps({"examples": 1}))
    (cache / "COMPLETED").write_text("")
    ids = {"inputs": [5, 6], "targets": [7]}
    lists = {k: tf.train.Feature(int64_list=tf.train.Int64List(value=v)) for k, v in ids.items()}
    example = tf.train.Example(features=tf.train.Features(feature=lists))
    with tf.io.TFRecordWriter(str(cache / "test.tfrecord-00000-of-00001")) as writer:
        writer.write(example.SerializeToString())
    monkey = pytest.MonkeyPatch()
    with monkey.context() as patched:
        patched.setattr(seqio.utils, "_GLOBAL_CACHE_DIRECTORIES", [str(tmp_path)])
        (row,) = rows(task, use_cached=True)
    assert {k: v.tolist() for k, v in row.items()} == {"inputs": [5, 6, EOS], "targets": [7, EOS]}


def test_twice_the_same_is_one_and_anything_else_under_the_name_is_refused(
    tasks, seqio, folder, tmp_path
):
    names = tasks.register_prepared(folder)
    tasks_before = {name: seqio.get_mixture_or_task(name) for name in names}
    assert tasks.register_prepared(folder, lists=[("de", "yi")]) == [*names, "m4_de_yi_en"]
    assert all(seqio.get_mixture_or_task(name) is task for name, task in tasks_before.items())
    message = (
        "tasks 'm4': seqio has something else under 5 of the names (m4_co_en, m4_de_en, m4_fr_en,"
        " ...); give another name"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        tasks.register_prepared(folder, source_tags=True)
    message = "seqio has something else under 3 of the names (m4, m4_all_en, m4_high_en)"
    with pytest.raises(ValueError, match=re.escape(message)):
        tasks.register_prepared(folder, rates=tasks.Rates(temperature=1.0))
    other = make(tmp_path / "other", {"de": 12})
    with pytest.raises(ValueError, match=f"^register: 'm4' is '{re.escape(str(folder))}' already"):
        tasks.register_prepared(other)
    assert tasks.register_prepared(other, name="second")[:2] == [
        "m4_second_de_en",
        "m4_second",
    ]


def test_languages_without_text_are_named(tasks, seqio, folder, caplog):
    caplog.set_level(logging.WARNING, "gshard_m4.tasks.registry")
    tasks.register_prepared(folder)
    assert [record.getMessage() for record in caplog.records] == [
        "tasks 'm4': no training text, so in no mixture: co"
    ]


def test_all_faults_of_vocabularies_and_lists_at_once(tasks, seqio, tmp_path):
    path = make(tmp_path / "m4", {"de": 12, "co": 0}, tagged=["de"])
    (path / "vocabulary" / "target.model").unlink()
    with pytest.raises(InputError) as caught:
        tasks.register_prepared(path, source_tags=True, lists=[("de", "xx"), ("co", "de")])
    models = path / "vocabulary"
    assert list(caught.value.faults) == [
        f"tasks 'm4': '{models}/source.model' has no piece for the tags of co; make it with"
        " gshard-m4 vocabulary --tags",
        f"tasks 'm4': no vocabulary '{models}/target.model'; gshard-m4 vocabulary makes it",
        "tasks 'm4': no language xx for the mixture of de, xx",
        "tasks 'm4': no training text in co for the mixture of co, de",
    ]
    assert not [*seqio.TaskRegistry.names(), *seqio.MixtureRegistry.names()]


def test_any_seqio_data_source(tasks, seqio, tmp_path):
    import tensorflow as tf

    def dataset(split, shuffle_files, seed=None):
        del shuffle_files, seed
        rows: Any = {"translation": {"az": [f"{split} rot"], "en": ["red"]}, "id": [1]}
        return tf.data.Dataset.from_tensor_slices(rows)

    source = seqio.FunctionDataSource(
        dataset, splits=["train", "test"], num_input_examples={"train": 1, "test": 1}
    )
    models = {
        "source_vocabulary": corpus().source_vocabulary,
        "target_vocabulary": corpus().target_vocabulary,
    }
    columns = ("translation/az", "translation/en")
    names = tasks.register_sources("ted", {"az": source}, columns=columns, **models)
    assert names == ["ted_az_en", "ted", "ted_all_en", "ted_mid_en"]
    assert tasks.register_sources("ted", {"az": source}, columns=columns, **models) == names
    (row,) = rows(seqio.get_mixture_or_task("ted_az_en"))
    assert row["inputs_pretokenized"] == b"test rot"
    assert row["targets_pretokenized"] == b"red"
    with pytest.raises(ValueError, match=r"^tasks 'ted': seqio has something else under 1 of"):
        tasks.register_sources("ted", {"az": source}, **models)


def test_tfds_data_sets_are_named_and_not_opened(tasks, seqio):
    models = {
        "source_vocabulary": corpus().source_vocabulary,
        "target_vocabulary": corpus().target_vocabulary,
    }
    pairs = {"az": ("az", "en"), "be": ("be", "en")}
    tasks.register_sources(
        "ted",
        {code: f"ted_hrlr_translate/{code}_to_en:1.0.0" for code in pairs},
        columns=pairs,
        counts={"az": 5946, "be": 4509},
        **models,
    )
    found = seqio.get_mixture_or_task("ted_all_en")
    assert {task.name: found.get_rate(task) for task in found.tasks} == pytest.approx(
        {
            f"ted_{code}_en": rate
            for code, rate in mixture.temperature_rates({"az": 5946, "be": 4509}).items()
        }
    )
    assert isinstance(found.tasks[0].source, seqio.TfdsDataSource)


def test_metrics_of_a_task_score_decoded_predictions_against_the_text(tasks, seqio, folder):
    tasks.register_prepared(folder)
    task = seqio.get_mixture_or_task("m4_de_en")
    found = rows(task)
    vocabulary = task.output_features["targets"].vocabulary
    said = [vocabulary.decode(row["targets"].tolist()) for row in found[:2]]
    targets = [row["targets_pretokenized"].decode() for row in found]
    (metric,) = task.predict_metric_fns
    scores = metric(targets=targets, predictions=[*said, ""])
    assert scores == translation_metrics(targets, [*targets[:2], ""])
    assert scores["exact"] == pytest.approx(2 / 3)
