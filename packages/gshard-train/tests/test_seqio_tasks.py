"""Training from and translating the tasks of seqio, with a mixture made for these tests."""

import dataclasses
import json
import re
import warnings

import jax
import numpy as np
import pytest

from gshard_annotate import DEFAULT_RULES, make_mesh

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # TensorFlow's and seqio's own
    import seqio
    import tensorflow as tf

from gshard_train import inference, state
from gshard_train.checkpoint import Checkpointer
from gshard_train.data import SeqioFeed
from gshard_train.decode import BeamSearch
from gshard_train.errors import UserError
from gshard_train.experiment import Experiment
from gshard_train.held_out import find_tasks, read_splits
from gshard_train.optimizer import adam

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


def feed(process_index: int = 0, process_count: int = 1) -> SeqioFeed:
    return SeqioFeed(
        mixture_or_task_name="spell",
        task_feature_lengths=LENGTHS,
        batch_size=8,
        seed=3,
        process_index=process_index,
        process_count=process_count,
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


def test_examples_of_a_split_in_their_order():
    one, two = read_splits("spell", "validation", LENGTHS)
    assert (one.task, len(one.examples)) == ("spell_ab", 10)
    assert (two.task, len(two.examples)) == ("spell_c", 5)
    assert (two.examples[1].source, two.examples[1].reference) == ("cgre", "gree")
    assert two.examples[1].tokens_T[-1] == 1


def test_an_unknown_mixture_or_split_is_named_with_what_there_is():
    with pytest.raises(UserError) as error:
        find_tasks("spel")
    assert str(error.value) == (
        "MIXTURE_OR_TASK_NAME='spel' is not registered with seqio; did you mean spell or spell_c "
        "or spell_ab? MIXTURE_OR_TASK_MODULE names the module whose import registers it"
    )
    with pytest.raises(UserError, match=r"split 'test' is missing in 2 of 2 tasks \(spell_ab, "):
        read_splits("spell", "test", LENGTHS)


def test_a_vocabulary_that_is_not_there_is_named(tmp_path):
    feature = seqio.Feature(seqio.SentencePieceVocabulary(str(tmp_path / "no.model")))
    seqio.TaskRegistry.add(
        "no_vocabulary",
        source=seqio.FunctionDataSource(lambda split, shuffle_files: None, splits=["validation"]),
        preprocessors=[],
        output_features={"inputs": feature, "targets": feature},
    )
    expected = f"vocabulary: no file '{tmp_path}/no.model' for the inputs of no_vocabulary"
    with pytest.raises(UserError, match=re.escape(expected)):
        read_splits("no_vocabulary", "validation", LENGTHS)


@pytest.fixture
def trained(tiny, tmp_path) -> Experiment:
    """A model that has not learnt anything, with a checkpoint."""
    model = dataclasses.replace(tiny, source_vocab_size=384, target_vocab_size=384)
    experiment = Experiment(
        model_dir=str(tmp_path),
        make_mesh=lambda: make_mesh({"data": 2, "expert": 4}),
        model=model,
        optimizer=adam(1e-3),
        make_feed=SeqioFeed,
        mixture_or_task_name="spell",
        task_feature_lengths=LENGTHS,
        batch_size=8,
    )
    made = state.create(
        state.abstract_model(model), adam(1e-3), DEFAULT_RULES, experiment.make_mesh(), seed=0
    )
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(7, made, {"next_index": 7})
    return experiment


def translations(experiment: Experiment, split: str) -> dict[str, list[dict]]:
    folder = experiment.path("translations", split)
    return {
        path.stem: [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        for path in sorted(folder.glob("*.jsonl"))
    }


def test_every_example_gets_a_line_and_the_manifest_counts_them(trained):
    inference.infer(trained, splits=["validation"], batch_size=8, search=BeamSearch(beams=2))
    found = translations(trained, "validation")
    assert {task: len(lines) for task, lines in found.items()} == {"spell_ab": 10, "spell_c": 5}
    assert found["spell_c"][3].keys() == {
        "id",
        "source",
        "reference",
        "prediction",
        "score",
        "truncated",
    }
    assert (found["spell_c"][3]["id"], found["spell_c"][3]["source"]) == (3, "cbla")
    manifest = json.loads(trained.path("translations", "validation", "manifest.json").read_text())
    assert manifest == {
        "tasks": {"spell_ab": 10, "spell_c": 5},
        "checkpoint_step": 7,
        "decoder": {"beams": 2, "alpha": 0.8, "kept": "reordered"},
        "split": "validation",
    }


@pytest.mark.slow
def test_translations_do_not_depend_on_the_batch(trained):
    search = BeamSearch(beams=2)
    inference.infer(trained, splits=["validation"], batch_size=8, search=search)
    first = translations(trained, "validation")
    inference.infer(trained, splits=["validation"], batch_size=16, search=search)
    second = translations(trained, "validation")
    for task in first:
        for a, b in zip(first[task], second[task], strict=True):
            assert (a["prediction"], a["truncated"]) == (b["prediction"], b["truncated"])
            assert a["score"] == pytest.approx(b["score"], abs=1e-5)


def test_faults_leave_nothing_behind(trained, tmp_path):
    with pytest.raises(UserError, match="there is no checkpoint 8 in"):
        inference.infer(trained, splits=["validation"], batch_size=8, checkpoint_step=8)
    with pytest.raises(UserError, match="batch_size=12 cannot be divided by the 8 parts"):
        inference.infer(trained, splits=["validation"], batch_size=12)
    with pytest.raises(UserError, match=r"MIXTURE_OR_TASK_MODULE='no\.such' cannot be imported"):
        inference.infer(dataclasses.replace(trained, mixture_or_task_module="no.such"))
    empty = dataclasses.replace(trained, model_dir=str(tmp_path / "empty"))
    with pytest.raises(UserError, match="empty holds no checkpoint; train first"):
        inference.infer(empty)
    assert not trained.path("translations").exists()
