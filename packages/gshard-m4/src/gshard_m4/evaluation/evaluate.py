"""Scores translations into English, language by language, with sacrebleu.

The numbers are sacrebleu's own for the raw strings: one corpus a language, one reference.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import version

from gshard_m4.evaluation import metrics
from gshard_m4.evaluation.language_scores import How, score_languages, signatures
from gshard_m4.evaluation.ranking import rank
from gshard_m4.evaluation.scores import (
    BANDS,
    Band,
    LanguageScores,
    Metric,
    Scores,
    SplitScores,
    leading_of,
    macro,
)
from gshard_m4.evaluation.translations import Split

MIN_PHRASES = 40  # fewer, and one phrase moves a language by more than 2.5 % exactly right

# What the sample's held-out sets show; other tasks' splits go by their own names.
_SAMPLE_TASKS = "m4_sample_"
_SAMPLE_SPLITS = {
    "test": (
        "Pairs",
        "Phrases that were not seen in this language. Their English was seen in training, "
        "paired with other languages: this set shows what languages share.",
    ),
    "unseen": (
        "Unseen English",
        "Phrases whose English was not seen in training, in any language. The sample is far too "
        "small to learn English from, so scores here are low. That is to be expected.",
    ),
    "validation": (
        "Validation",
        "Phrases held out for tuning. Settings may have been chosen on them: quote another set.",
    ),
}


def evaluate(
    splits: Sequence[Split],
    *,
    min_phrases: int = MIN_PHRASES,
    asked: metrics.Asked | None = None,
    identify: bool = True,
    processes: int = 1,
) -> Scores:
    """Scores of every language in every split.

    Args:
      splits: at least one, each with at least one task, as `read_translations` returns them.
      min_phrases: languages with fewer phrases get an average of their own.
      asked: the metrics; BLEU and chrF++ by default.
      identify: whether to count translations that are not in English.
      processes: how many languages are scored at the same time.

    Raises:
      InputError: a metric that is not there, or a model file that it needs.
    """
    asked = asked or metrics.Asked()
    files = metrics.check(asked)
    how = How(asked, min_phrases, identify)
    tasks = [task for split in splits for task in split.tasks]
    scored = iter(score_languages(tasks, how, processes=processes))
    found = [_split_scores(split, [next(scored) for _ in split.tasks]) for split in splits]
    kinds = metrics.described(asked, signatures(asked))
    packages = ["gshard-m4", "sacrebleu", *(["py3langid"] if identify else [])]
    return Scores(
        metrics=kinds,
        min_phrases=min_phrases,
        splits=tuple(averaged(split, leading_of(kinds)) for split in found),
        versions={name: version(name) for name in packages},
        files=files,
    )


def changed(
    scores: Scores, change: Callable[[SplitScores, LanguageScores], LanguageScores]
) -> Scores:
    """The scores with every language's changed and the averages taken anew."""
    splits = tuple(
        averaged(
            replace(split, languages=tuple(change(split, one) for one in split.languages)),
            leading_of(scores.metrics),
        )
        for split in scores.splits
    )
    return replace(scores, splits=splits)


def averaged(split: SplitScores, leading: Metric | None) -> SplitScores:
    """The split with averages and bands of its languages, in order of the leading metric."""
    languages = tuple(
        sorted(split.languages, key=lambda one: (one.few_phrases, *rank(one, leading)))
    )
    split = replace(
        split,
        languages=languages,
        macro=macro([one for one in languages if not one.few_phrases]),
        macro_few=macro([one for one in languages if one.few_phrases]),
    )
    return replace(split, bands=tuple(_bands(split.quoted)))


def _bands(languages: Sequence[LanguageScores]) -> list[Band]:
    found = []
    for name in BANDS:
        inside = [one for one in languages if one.band == name]
        sizes = [one.train_rows for one in inside if one.train_rows is not None]
        average = macro(inside)
        if average is not None:
            ends = (min(sizes), max(sizes)) if sizes else (None, None)
            found.append(Band(name, *ends, average))
    return found


def _split_scores(split: Split, languages: list[LanguageScores]) -> SplitScores:
    title, shows = _describe(split)
    return SplitScores(
        name=split.name,
        title=title,
        shows=shows,
        checkpoint_step=split.checkpoint_step,
        decoder=split.decoder,
        macro=None,
        macro_few=None,
        languages=tuple(languages),
        not_scored=split.not_scored,
    )


def _describe(split: Split) -> tuple[str, str]:
    if all(task.name.startswith(_SAMPLE_TASKS) for task in split.tasks):
        return _SAMPLE_SPLITS.get(split.name, (split.name, ""))
    return split.name, ""
