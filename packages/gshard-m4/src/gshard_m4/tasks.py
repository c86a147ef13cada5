"""A corpus as seqio tasks `<name>_<language>_en` and their temperature mixture `<name>`."""

import functools
from typing import Any

from gshard_m4.corpus import Corpus
from gshard_m4.mixture import mixture_of

try:
    import seqio
    import tensorflow as tf
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"gshard_m4's seqio tasks need {error.name}, which is not installed:"
        " pip install 'gshard-m4[seqio]'",
        name=error.name,
    ) from error


def register(corpus: Corpus) -> None:
    """Adds a task for every language of a corpus, and their mixture, to seqio's registries.

    Splits are the corpus's; those without a pair are left out of a task. Tasks work uncached.
    """
    models = {"inputs": corpus.source_vocabulary, "targets": corpus.target_vocabulary}
    features = {
        side: seqio.Feature(seqio.SentencePieceVocabulary(str(model)), add_eos=True)
        for side, model in models.items()
    }
    for language, splits in corpus.pairs.items():
        seqio.TaskRegistry.add(
            corpus.task_name(language),
            source=seqio.FunctionDataSource(  # pyright: ignore[reportArgumentType] (seqio's types)
                functools.partial(_dataset, corpus, language),
                splits=[split for split, pairs in splits.items() if pairs],
                num_input_examples={split: len(pairs) for split, pairs in splits.items()},
            ),
            preprocessors=[
                seqio.preprocessors.tokenize,
                seqio.CacheDatasetPlaceholder(),
                seqio.preprocessors.append_eos_after_trim,
            ],
            output_features=features,
            metric_fns=[],
        )
    rates = mixture_of(corpus).rates
    seqio.MixtureRegistry.add(
        corpus.name, [(corpus.task_name(language), rate) for language, rate in rates.items()]
    )


def _dataset(
    corpus: Corpus, language: str, split: str, shuffle_files: bool, seed: int | None = None
) -> Any:
    """A tf.data.Dataset of a split's pairs (Any: TensorFlow hides its class from type checkers)."""
    del shuffle_files, seed  # One list in memory; seqio shuffles it where asked.
    pairs = corpus.pairs[language][split]
    columns: Any = {"inputs": [x for x, _ in pairs], "targets": [y for _, y in pairs]}
    return tf.data.Dataset.from_tensor_slices(columns)
