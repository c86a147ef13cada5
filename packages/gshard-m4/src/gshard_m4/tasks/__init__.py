"""Corpora as seqio tasks `<name>_<language>_en` and their temperature mixtures.

Names, languages and rates are those of `gshard_m4.mixture`, so seqio and the training feed mix
alike. Every task works uncached, and cached by seqio's own tool; splits without a row are left out.

A module of two lines makes a prepared directory known to anything that imports modules to find
tasks (`MIXTURE_OR_TASK_MODULE`, `--module_import` of seqio and T5X):

    from gshard_m4 import tasks
    tasks.register_prepared("/data/m4")
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from gshard_m4 import mixture
from gshard_m4.corpus import Corpus
from gshard_m4.prepared import MANIFEST, open_prepared

try:
    import seqio

    from gshard_m4.tasks.registry import Plan, Rates, Same, add
    from gshard_m4.tasks.sources import Columns, memory_source, shard_source
except ModuleNotFoundError as error:
    if error.name and error.name.startswith("gshard_m4"):
        raise
    raise ModuleNotFoundError(
        f"gshard_m4's seqio tasks need {error.name}, which is not installed:"
        " pip install 'gshard-m4[seqio]'",
        name=error.name,
    ) from error

M4_RATES = Rates()


def register(
    corpus: Corpus, *, lists: Iterable[Sequence[str]] = (), rates: Rates = M4_RATES
) -> list[str]:
    """Adds tasks and mixtures of a corpus in memory to seqio's registries.

    Args:
        corpus: for each language a task, `<name>_<language>_en`.
        lists: languages of further mixtures, `<name>_<a>_<b>_en` beside `<name>`, `<name>_all_en`
            and `<name>_high_en`, `_mid_en`, `_low_en`.
        rates: of the mixtures.

    Returns:
        The names, tasks first.

    Raises:
        ValueError: naming everything that cannot be registered; nothing is then.
    """
    return add(
        Plan(
            name=corpus.name,
            sources={code: memory_source(corpus, code) for code in corpus.pairs},
            origins=dict.fromkeys(corpus.pairs, Same(corpus)),
            counts=corpus.counts("train"),
            source_vocabulary=corpus.source_vocabulary,
            target_vocabulary=corpus.target_vocabulary,
            lists=tuple(map(tuple, lists)),
            rates=rates,
        )
    )


def register_prepared(
    path: str | Path,
    *,
    name: str | None = None,
    lists: Iterable[Sequence[str]] = (),
    source_tags: bool = False,
    rates: Rates = M4_RATES,
    vocabulary_dir: str | Path | None = None,
) -> list[str]:
    """Adds tasks and mixtures of a prepared directory to seqio's registries.

    `gshard_m4.mixture.find` and the training feed know the names from then on too.

    Args:
        path: what `gshard-m4 prepare` and `gshard-m4 vocabulary` wrote.
        name: names begin with `m4_<name>`, or with `m4` where none is given.
        lists: languages of further mixtures, such as `[("de", "fr")]` for `m4_de_fr_en`.
        source_tags: each source begins with its language's tag; `vocabulary --tags` makes them.
        rates: of the mixtures.
        vocabulary_dir: where source.model and target.model are, if not in the directory itself.

    Returns:
        The names, tasks first.

    Raises:
        InputError: where the directory or its vocabularies cannot be used.
        ValueError: naming everything that cannot be registered; nothing is then.
    """
    corpus = mixture.register(path, name=name)
    if vocabulary_dir is not None:
        corpus = corpus.with_vocabulary(vocabulary_dir)
    prepared = open_prepared(path)
    origin = str(prepared.path.absolute()), (prepared.path / MANIFEST).read_bytes()
    return add(
        Plan(
            name=corpus.name,
            sources={code: shard_source(prepared, code) for code in corpus.pairs},
            origins=dict.fromkeys(corpus.pairs, origin),
            counts=corpus.counts("train"),
            source_vocabulary=corpus.source_vocabulary,
            target_vocabulary=corpus.target_vocabulary,
            lists=tuple(map(tuple, lists)),
            source_tags=source_tags,
            rates=rates,
        )
    )


def register_sources(
    name: str,
    sources: Mapping[str, seqio.DataSource | str],
    *,
    source_vocabulary: str | Path,
    target_vocabulary: str | Path,
    columns: Mapping[str, Columns] | Columns = ("inputs", "targets"),
    counts: Mapping[str, int] | None = None,
    lists: Iterable[Sequence[str]] = (),
    source_tags: bool = False,
    rates: Rates = M4_RATES,
) -> list[str]:
    """Adds tasks and mixtures of any seqio data sources, one a language.

    Args:
        name: names begin with it.
        sources: language code -> a data source, or the name of a TFDS data set, such as
            `{"az": "ted_hrlr_translate/az_to_en:1.0.0"}`.
        source_vocabulary: a SentencePiece model for all source languages.
        target_vocabulary: a SentencePiece model for English.
        columns: where rows have source and English, for all languages or for each; `a/b` is b
            inside a.
        counts: training rows of each language, by default what the sources say.
        lists: languages of further mixtures.
        source_tags: each source begins with its language's tag.
        rates: of the mixtures.

    Returns:
        The names, tasks first.

    Raises:
        InputError: where a vocabulary cannot be used.
        ValueError: naming everything that cannot be registered; nothing is then.
    """
    made = {
        code: seqio.TfdsDataSource(source) if isinstance(source, str) else source
        for code, source in sources.items()
    }
    if counts is None:
        counts = {code: source.num_input_examples("train") or 0 for code, source in made.items()}
    return add(
        Plan(
            name=name,
            sources=made,
            origins={
                code: source if isinstance(source, str) else Same(source)
                for code, source in sources.items()
            },
            counts=counts,
            source_vocabulary=Path(source_vocabulary),
            target_vocabulary=Path(target_vocabulary),
            columns=dict.fromkeys(made, columns) if isinstance(columns, tuple) else columns,
            lists=tuple(map(tuple, lists)),
            source_tags=source_tags,
            rates=rates,
        )
    )
