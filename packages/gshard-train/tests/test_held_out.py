"""Reading the held-out examples of seqio tasks, from their sources and from a cache."""

import json
import logging
import re
import warnings

import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # TensorFlow's and seqio's own
    import seqio
    import tensorflow as tf

from gshard_train.data import SeqioFeed
from gshard_train.errors import UserError
from gshard_train.measuring.held_out import find_tasks, read_splits

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")

LENGTHS = {"inputs": 6, "targets": 5}
FEATURE = seqio.Feature(seqio.ByteVocabulary(), add_eos=True)
TOKENIZE = seqio.preprocessors.tokenize


def register(name: str, rows: dict[str, list[str]], *, preprocessors=None, features=None) -> None:
    """A task whose source is its target behind a mark; `rows` are the targets of each split."""

    def read(split, shuffle_files, seed=None):
        columns = {"inputs": ["+" + row for row in rows[split]], "targets": rows[split]}
        return tf.data.Dataset.from_tensor_slices(
            {name: tf.constant(column, tf.string) for name, column in columns.items()}
        )

    seqio.TaskRegistry.add(
        name,
        source=seqio.FunctionDataSource(read, splits=list(rows)),
        preprocessors=preprocessors
        or [
            TOKENIZE,
            seqio.CacheDatasetPlaceholder(),
            seqio.preprocessors.append_eos_after_trim,
        ],
        output_features=features or {"inputs": FEATURE, "targets": FEATURE},
    )


WORDS = ["red", "green", "blue"]
register("held_ab", {"train": WORDS, "validation": [*WORDS, "white"], "test": WORDS})
register("held_cd", {"validation": WORDS})
register("held_ef", {"validation": WORDS, "test": []})
seqio.MixtureRegistry.add("held", ["held_cd", "held_ab", "held_ef"], default_rate=1.0)


def test_examples_of_each_task_in_their_order_cut_to_the_longest():
    one, two, _ = read_splits("held", "validation", LENGTHS)
    assert (one.task, len(one.examples), two.task) == ("held_ab", 4, "held_cd")
    second = one.examples[1]
    assert (second.source, second.reference) == ("+green", "green")
    assert second.tokens_T.tolist() == [46, 106, 117, 104, 104, 1]
    assert second.row["targets"].tolist() == [106, 117, 104, 104, 1]
    assert one.vocabulary_sizes == {"inputs": 259, "targets": 259}


def test_as_many_of_each_task_as_are_asked_for():
    found = read_splits("held", "validation", LENGTHS, num_examples=2)
    assert [[example.reference for example in task.examples] for task in found] == [
        ["red", "green"]
    ] * 3


def test_an_unknown_mixture_is_named_with_what_there_is():
    with pytest.raises(UserError) as error:
        find_tasks("hled")
    assert str(error.value) == (
        "MIXTURE_OR_TASK_NAME='hled' is not registered with seqio; did you mean held? "
        "MIXTURE_OR_TASK_MODULE names the module whose import registers it"
    )


def test_tasks_without_a_split_are_an_error_or_left_out_by_name(caplog):
    with pytest.raises(UserError) as error:
        read_splits("held", "test", LENGTHS)
    assert str(error.value) == (
        "split 'test' is missing in 1 of 3 tasks (held_cd); held_ab has train, validation, test; "
        "leave_out_lacking=True leaves them out"
    )
    with caplog.at_level(logging.WARNING):
        found = read_splits("held", "test", LENGTHS, leave_out_lacking=True)
    assert [task.task for task in found] == ["held_ab"]
    assert [record.getMessage() for record in caplog.records] == [
        "Split 'test' is missing in 1 of 3 tasks, left out: held_cd",
        "Split 'test' has no examples in 1 of 2 tasks, left out: held_ef",
    ]


def test_leaving_out_all_tasks_is_an_error():
    with pytest.raises(
        UserError, match=re.escape("split 'tset' is missing in 3 of 3 tasks (held_ab")
    ):
        read_splits("held", "tset", LENGTHS, leave_out_lacking=True)
    with pytest.raises(UserError, match="split 'test' has no examples in 1 of 1 tasks"):
        read_splits("held_ef", "test", LENGTHS, leave_out_lacking=True)


def test_a_vocabulary_that_is_not_there_is_named(tmp_path):
    feature = seqio.Feature(seqio.SentencePieceVocabulary(str(tmp_path / "no.model")))
    register(
        "held_no_vocabulary",
        {"validation": WORDS},
        preprocessors=[TOKENIZE],
        features={"inputs": feature, "targets": feature},
    )
    expected = f"vocabulary: no file '{tmp_path}/no.model' for the inputs of held_no_vocabulary"
    with pytest.raises(UserError, match=re.escape(expected)):
        read_splits("held_no_vocabulary", "validation", LENGTHS)


def test_texts_are_decoded_where_a_task_gives_none():
    register(
        "held_no_text",
        {"validation": WORDS},
        preprocessors=[
            lambda data: TOKENIZE(data, {"inputs": FEATURE, "targets": FEATURE}, False),
            seqio.preprocessors.append_eos_after_trim,
        ],
    )
    with pytest.raises(UserError, match="held_no_text gives no inputs_pretokenized and targets_"):
        read_splits("held_no_text", "validation", LENGTHS)
    (task,) = read_splits("held_no_text", "validation", LENGTHS, need_texts=False)
    assert (task.examples[2].source, task.examples[2].reference) == ("+blue", "blue")


def test_a_task_without_sources_is_refused():
    register(
        "held_lm",
        {"validation": WORDS},
        preprocessors=[
            lambda data: data.map(lambda row: {"targets": row["targets"]}),
            TOKENIZE,
        ],
        features={"targets": FEATURE},
    )
    with pytest.raises(UserError, match="task held_lm has no feature inputs"):
        read_splits("held_lm", "validation", LENGTHS)


def cached(word: bytes) -> bytes:
    """An example as a cache has it, source and target alike."""
    tokens = tf.train.Int64List(value=np.frombuffer(word, np.uint8) + 3)
    ids = tf.train.Feature(int64_list=tokens)
    text = tf.train.Feature(bytes_list=tf.train.BytesList(value=[word]))
    sides = dict.fromkeys(("inputs", "targets"), ids)
    sides |= {f"{side}_pretokenized": text for side in ("inputs", "targets")}
    features = tf.train.Features(feature=sides)
    return tf.train.Example(features=features).SerializeToString()


@pytest.fixture
def cache(tmp_path):
    """A directory as seqio_cache_tasks writes it, whose words differ from those of the source."""
    words = [b"one", b"two"]
    folder = tmp_path / "held_ab"
    folder.mkdir()
    ids = {"shape": [None], "dtype": "int32"}
    text = {"shape": [], "dtype": "string"}
    info = {
        "num_shards": 1,
        "features": {"inputs": ids, "targets": ids, "targets_pretokenized": text,
                     "inputs_pretokenized": text},
        "seqio_version": seqio.__version__,
    }  # fmt: skip
    for split in ("validation", "train"):
        (folder / f"info.{split}.json").write_text(json.dumps(info))
        (folder / f"stats.{split}.json").write_text(json.dumps({"examples": len(words)}))
        with tf.io.TFRecordWriter(str(folder / f"{split}.tfrecord-00000-of-00001")) as writer:
            for word in words:
                writer.write(cached(word))
    (folder / "COMPLETED").touch()
    before = list(seqio.get_global_cache_dirs())
    seqio.add_global_cache_dirs([str(tmp_path)])
    yield tmp_path
    seqio.set_global_cache_dirs(before)


def test_a_cache_is_read_where_it_is_asked_for(cache):
    (cached,) = read_splits("held_ab", "validation", LENGTHS, use_cached=True)
    assert [example.reference for example in cached.examples] == ["one", "two"]
    assert cached.examples[1].tokens_T.tolist() == [119, 122, 114, 1]
    (fresh,) = read_splits("held_ab", "validation", LENGTHS)
    assert len(fresh.examples) == 4


def test_a_cache_is_trained_from_where_it_is_asked_for(cache):
    def feed(name: str) -> SeqioFeed:
        return SeqioFeed(
            mixture_or_task_name=name,
            task_feature_lengths=LENGTHS,
            batch_size=4,
            seed=1,
            process_index=0,
            process_count=1,
            use_cached=True,
        )

    rows = {tuple(row) for row in next(feed("held_ab"))["decoder_target_tokens"].tolist()}
    assert rows <= {(114, 113, 104, 1, 0), (119, 122, 114, 1, 0)}
    with pytest.raises(UserError, match=r"use_cached: split 'train' of 2 of 3 tasks \(held_cd, he"):
        feed("held")


def test_a_cache_that_is_not_there_is_named_with_what_to_do(cache):
    expected = (
        "use_cached: split 'validation' of 2 of 3 tasks (held_cd, held_ef) is in no cache "
        f"directory ('{cache}'); write it with seqio_cache_tasks and give its --output_cache_dir "
        "as --seqio_additional_cache_dirs"
    )
    with pytest.raises(UserError, match=re.escape(expected)):
        read_splits("held", "validation", LENGTHS, use_cached=True)
