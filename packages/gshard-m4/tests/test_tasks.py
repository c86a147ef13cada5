import importlib
import subprocess
import sys
import warnings

import numpy as np
import pytest

from gshard_m4 import mixture
from gshard_m4.corpus import SPLITS
from gshard_m4.sample.corpus import corpus

LENGTHS = {"inputs": 9, "targets": 7}


@pytest.fixture(scope="module")
def seqio():
    """Seqio with the sample registered; its libraries' own warnings at import are not ours."""
    pytest.importorskip("seqio", reason="seqio comes with gshard-m4[seqio]")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module("gshard_m4.sample.tasks")
        return importlib.import_module("seqio")


def test_each_language_is_a_task_and_the_mixture_has_the_feeds_rates(seqio):
    found = seqio.get_mixture_or_task("m4_sample")
    rates = {task.name: found.get_rate(task) for task in found.tasks}
    ours = mixture.find("m4_sample").rates
    assert rates == {f"m4_sample_{language}_en": rate for language, rate in ours.items()}
    assert len(rates) == 102


def test_tasks_know_their_splits_and_sizes(seqio):
    for language, splits in corpus().pairs.items():
        task = seqio.get_mixture_or_task(f"m4_sample_{language}_en")
        assert set(task.splits) == set(SPLITS)
        assert {s: task.num_input_examples(s) for s in SPLITS} == {
            split: len(pairs) for split, pairs in splits.items()
        }


def test_features_have_the_vocabularies_of_the_feed(seqio):
    features = seqio.get_mixture_or_task("m4_sample").output_features
    assert {name: f.vocabulary.vocab_size for name, f in features.items()} == {
        "inputs": 12288,
        "targets": 1536,
    }
    for feature in features.values():
        vocabulary = feature.vocabulary
        assert (vocabulary.pad_id, vocabulary.eos_id, vocabulary.unk_id) == (0, 1, 2)
        assert feature.add_eos


@pytest.mark.filterwarnings("ignore")
def test_a_task_gives_the_rows_of_its_split_in_order_with_their_text(seqio):
    task = seqio.get_mixture_or_task("m4_sample_tg_en")
    rows = list(task.get_dataset(LENGTHS, "test", shuffle=False, num_epochs=1).as_numpy_iterator())
    texts = [(r["inputs_pretokenized"].decode(), r["targets_pretokenized"].decode()) for r in rows]
    assert texts == corpus().pairs["tg"]["test"]
    assert all(len(row["inputs"]) <= 9 and row["inputs"][-1] == 1 for row in rows)
    assert all(len(row["targets"]) <= 7 and row["targets"][-1] == 1 for row in rows)


@pytest.mark.filterwarnings("ignore")
def test_seqio_and_the_feed_make_the_same_arrays(seqio):
    from gshard_m4.encoding import Encoder
    from gshard_m4.vocabulary import Vocabulary

    task = seqio.get_mixture_or_task("m4_sample_km_en")
    data = task.get_dataset(LENGTHS, "validation", shuffle=False, num_epochs=1)
    data = seqio.EncDecFeatureConverter(pack=False)(data, LENGTHS)
    theirs = list(data.as_numpy_iterator())
    vocabularies = {
        "inputs": Vocabulary(corpus().source_vocabulary),
        "targets": Vocabulary(corpus().target_vocabulary),
    }
    ours = Encoder(vocabularies, LENGTHS)(corpus().pairs["km"]["validation"])
    for name, array in ours.items():
        np.testing.assert_array_equal(array, np.stack([row[name] for row in theirs]), name)


def test_a_missing_seqio_is_named_with_the_command_that_brings_it():
    code = """
import sys
import warnings
sys.modules["seqio"] = None
import gshard_m4.sample.tasks
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: gshard_m4's seqio tasks need seqio, which is not installed:"
        " pip install 'gshard-m4[seqio]'"
    )
