"""Scores translations into English, language by language, with sacrebleu.

The numbers are sacrebleu's own for the raw strings: BLEU with the 13a tokenizer and chrF++
(`CHRF(word_order=2)`), one corpus a language, one reference.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from gshard_m4.evaluation.scores import LanguageScores, Scores, SplitScores, macro
from gshard_m4.evaluation.translations import Split, Task, Translation

if TYPE_CHECKING:
    from sacrebleu.metrics import BLEU, CHRF

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


def evaluate(splits: Sequence[Split], *, min_phrases: int = MIN_PHRASES) -> Scores:
    """Scores of every language in every split.

    Args:
      splits: at least one, each with at least one task, as `read_translations` returns them.
      min_phrases: languages with fewer phrases get an average of their own.
    """
    # Here, not above: importing it takes longer than `gshard-m4 --help` should.
    from sacrebleu.metrics import BLEU, CHRF

    bleu, chrf = BLEU(), CHRF(word_order=2)
    found = tuple(_score_split(split, bleu, chrf, min_phrases) for split in splits)
    signatures = {
        "chrfpp": chrf.get_signature().format(),
        "bleu": bleu.get_signature().format(),
    }
    return Scores(signatures, min_phrases, found)


def _score_split(split: Split, bleu: "BLEU", chrf: "CHRF", min_phrases: int) -> SplitScores:
    scored = [_score_task(task, bleu, chrf, min_phrases) for task in split.tasks]
    scored.sort(key=lambda one: (one.few_phrases, -one.chrfpp, one.code))
    title, shows = _describe(split)
    return SplitScores(
        name=split.name,
        title=title,
        shows=shows,
        checkpoint_step=split.checkpoint_step,
        decoder=split.decoder,
        macro=macro([one for one in scored if not one.few_phrases]),
        macro_few=macro([one for one in scored if one.few_phrases]),
        languages=tuple(scored),
    )


def _score_task(task: Task, bleu: "BLEU", chrf: "CHRF", min_phrases: int) -> LanguageScores:
    predictions = [row.prediction for row in task.rows]
    references = [row.reference for row in task.rows]
    bleu_score = bleu.corpus_score(predictions, [references])
    return LanguageScores(
        code=task.language.code,
        name=task.language.name,
        script=task.language.script,
        task=task.name,
        phrases=len(task.rows),
        few_phrases=len(task.rows) < min_phrases,
        chrfpp=chrf.corpus_score(predictions, [references]).score,
        exact=_share(is_exact(row) for row in task.rows),
        bleu=bleu_score.score,
        bleu_four_grams=bleu_score.totals[3],
        short=_share(len(bleu.tokenizer(text).split()) < 4 for text in references),
        empty=_share(not row.prediction.strip() for row in task.rows),
        copied=_share(is_copied(row) for row in task.rows),
        truncated=_share(row.truncated for row in task.rows),
    )


def is_exact(row: Translation) -> bool:
    """Whether the translation is the reference, spaces around them aside."""
    return row.prediction.strip() == row.reference.strip()


def is_copied(row: Translation) -> bool:
    """Whether the source came out untranslated where the reference differs from it."""
    return row.prediction.strip() == row.source.strip() and not is_exact(row)


def _share(flags: Iterable[bool]) -> float:
    listed = list(flags)
    return sum(listed) / len(listed)


def _describe(split: Split) -> tuple[str, str]:
    if all(task.name.startswith(_SAMPLE_TASKS) for task in split.tasks):
        return _SAMPLE_SPLITS.get(split.name, (split.name, ""))
    return split.name, ""
