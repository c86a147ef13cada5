"""Training from the tasks of seqio, with a mixture made for these tests."""

import re
import warnings

import jax
import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # TensorFlow's and seqio's own
    import seqio
    import tensorflow as tf

from gshard_train.data import SeqioFeed
from gshard_train.errors import UserError

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")

LENGTHS = {"inputs": 6, "targets": 5}
WORDS = ["red", "green", "blue", "black", "white"]


def register(name: str, marks: str) -> None:
    """A task whose source spells the target's letters behind a mark."""
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
            seqio.preprocessors.tokenize,
            seqio.preprocessors.append_eos_after_trim,
        ],
        output_features=features,
    )


register("spell_ab", "ab")
register("spell_c", "c")
seqio.MixtureRegistry.add("spell", ["spell_ab", "spell_c"], default_rate=1.0)


def feed(process_index: int = 0, process_count: int = 1, *, pack: bool = False) -> SeqioFeed:
    return SeqioFeed(
        mixture_or_task_name="spell",
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
    again = feed()
    again.set_state({"next_index": 2})
    for expected in batches[2:]:
        jax.tree.map(np.testing.assert_array_equal, next(again), expected)
    assert again.get_state() == whole.get_state() == {"next_index": 4}
    assert batches[0]["encoder_input_tokens"].shape == (8, 6)
    assert batches[0]["decoder_target_tokens"].shape == (8, 5)


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
