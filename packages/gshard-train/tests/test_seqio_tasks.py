"""Training from the tasks of seqio, with a mixture made for these tests."""

import functools
import re
import warnings
from collections.abc import Callable

import jax
import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # TensorFlow's and seqio's own
    import seqio
    import tensorflow as tf

from gshard_train.data import AnotherOrderError, SeqioFeed
from gshard_train.errors import UserError

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")

LENGTHS = {"inputs": 6, "targets": 5}
WORDS = ["red", "green", "blue", "black", "white"]
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def register(name: str, marks: str, *first: Callable) -> None:
    """A task whose source spells the target's letters behind a mark, after `first`."""
    rows = [(mark + word[:3], word[:4]) for mark in marks for word in WORDS]
    features = {
        side: seqio.Feature(seqio.ByteVocabulary(), add_eos=True) for side in ("inputs", "targets")
    }
    seqio.TaskRegistry.add(
        name,
        source=seqio.FunctionDataSource(
            lambda split, shuffle_files, seed=None: tf.data.Dataset.from_tensor_slices(
                {"inputs": [a for a, _ in rows], "targets": [b for _, b in rows]}
            ),
            splits=["train", "validation"],
            num_input_examples={"train": len(rows), "validation": len(rows)},
        ),
        preprocessors=[
            *(functools.partial(_mapped, function) for function in first),
            seqio.preprocessors.tokenize,
            seqio.preprocessors.append_eos_after_trim,
        ],
        output_features=features,
    )


def _mapped(function: Callable, data: tf.data.Dataset) -> tf.data.Dataset:
    return data.map(function)


register("spell_ab", "ab")
register("spell_c", "c")
seqio.MixtureRegistry.add("spell", ["spell_ab", "spell_c"], default_rate=1.0)


def unseeded(row: dict) -> dict:
    """Text with a letter that is another one each time."""
    letter = tf.strings.substr(LETTERS, tf.random.uniform([], maxval=26, dtype=tf.int32), 1)
    return {**row, "inputs": tf.strings.join([row["inputs"], letter])}


register("random", "ab", unseeded)


def feed(
    process_index: int = 0, process_count: int = 1, *, pack: bool = False, name: str = "spell"
) -> SeqioFeed:
    return SeqioFeed(
        mixture_or_task_name=name,
        task_feature_lengths={"inputs": 17, "targets": 16} if pack else LENGTHS,
        batch_size=8,
        seed=3,
        process_index=process_index,
        process_count=process_count,
        pack=pack,
    )


def test_a_feed_goes_on_from_its_position():
    whole = feed()
    batches = [next(whole) for _ in range(4)]
    stopped = feed(0, 2)  # of two processes, and goes on as one of four
    for _ in range(2):
        next(stopped)
    again = feed(1, 4)
    again.set_state(stopped.get_state())
    for expected in batches[2:]:
        jax.tree.map(lambda x, y: np.testing.assert_array_equal(x, y[2:4]), next(again), expected)
    assert again.get_state() == whole.get_state()
    assert again.get_state()["next_index"] == 4
    assert batches[0]["encoder_input_tokens"].shape == (8, 6)
    assert batches[0]["decoder_target_tokens"].shape == (8, 5)


def test_a_task_that_gives_other_text_when_read_again_is_noticed():
    first, again = feed(name="random"), feed(name="random")
    for _ in range(3):
        next(first)
    position = first.get_state()
    expected = r"batch 2 of random, read again, is not what it was \(hash .*, then "
    with pytest.raises(AnotherOrderError, match=expected + position["batch_hash"]):
        again.set_state(position)
    next(again)
    assert again.get_state()["next_index"] == 4
    again.set_state({"next_index": 1})  # as an earlier version kept it: not compared


def test_an_identity_names_what_the_order_depends_on():
    found = feed().identity()
    assert found == feed(1, 2).identity()
    assert found["rate of spell_c"] == 1.0
    assert found["vocabulary of targets"] == "ByteVocabulary of 259"
    assert found["seed"] == 3
    assert feed(1, 2).examples({"next_index": 7})[0] == "spell batch 7 row 4"


def test_packed_rows_hold_whole_examples_and_start_each_anew():
    whole = feed(pack=True)
    batch = next(whole)
    assert set(batch) == set(whole.features)
    assert batch["encoder_segment_ids"].max(axis=1).min() > 1
    starts = (batch["decoder_positions"] == 0) & (batch["decoder_segment_ids"] > 0)
    assert starts.sum() == batch["decoder_segment_ids"].max(axis=1).sum()
    assert not batch["decoder_input_tokens"][starts].any()
    second_half = next(feed(1, 2, pack=True))
    jax.tree.map(
        lambda half, rows: np.testing.assert_array_equal(half, rows[4:]), second_half, batch
    )


def test_processes_share_a_global_batch():
    expected = next(feed())["encoder_input_tokens"]
    parts = [next(feed(i, 2))["encoder_input_tokens"] for i in range(2)]
    np.testing.assert_array_equal(np.concatenate(parts), expected)


def test_a_feed_that_cannot_be_says_why():
    with pytest.raises(UserError, match=re.escape("'spel' is not registered with seqio; did you")):
        SeqioFeed(
            mixture_or_task_name="spel",
            task_feature_lengths=LENGTHS,
            batch_size=8,
            seed=3,
            process_index=0,
            process_count=1,
        )
    with pytest.raises(UserError, match="BATCH_SIZE=8 cannot be divided among 3 processes"):
        feed(0, 3)
