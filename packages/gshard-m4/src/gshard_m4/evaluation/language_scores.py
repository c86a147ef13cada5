"""The scores of single languages, several of them at once in processes of their own."""

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

from gshard_m4.evaluation import defects, metrics
from gshard_m4.evaluation.identify import Identifier
from gshard_m4.evaluation.scores import LanguageScores, OtherLanguage, SentenceScore
from gshard_m4.evaluation.translations import Task, Translation

WORST_SENTENCES = 10
# Languages that share their references keep them counted, so a process gets many at a time.
_PARTS_PER_PROCESS = 2


@dataclass(frozen=True)
class How:
    """How every language is scored."""

    asked: metrics.Asked
    min_phrases: int
    identify: bool
    worst: int = WORST_SENTENCES


def score_languages(tasks: Sequence[Task], how: How, *, processes: int) -> list[LanguageScores]:
    """The scores of every task, in order."""
    if processes <= 1 or len(tasks) <= 1:
        return score_part(tasks, how)
    size = math.ceil(len(tasks) / (_PARTS_PER_PROCESS * processes))
    parts = [tasks[start : start + size] for start in range(0, len(tasks), size)]
    # Forking a process that has threads, as numpy's has, can hang.
    with ProcessPoolExecutor(min(processes, len(parts)), get_context("spawn")) as pool:
        found = pool.map(score_part, parts, [how] * len(parts))
        return [one for part in found for one in part]


def score_part(tasks: Sequence[Task], how: How) -> list[LanguageScores]:
    """The scores of every task, in this process."""
    scorer = Scorer(how)
    return [scorer.score(task) for task in tasks]


def signatures(asked: metrics.Asked) -> dict[str, str]:
    """The signatures that scores of one reference have.

    That of spBLEU does not say which model was under the usual name, so one that is not the
    published model is added.
    """
    built = metrics.build(asked, [["a"]])
    found = {key: metric.get_signature().format() for key, metric in built.items()}
    if "spbleu" in found and asked.spbleu_sha256 != metrics.FLORES200_SHA256:
        found["spbleu"] += f"|model:{asked.spbleu_sha256[:12]}"
    return found


class Scorer:
    """Sacrebleu's metrics with the references of the last language, and the identifier."""

    def __init__(self, how: How):
        """Loads what is asked for."""
        from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

        self._how = how
        self._tokens = Tokenizer13a()
        self._identifier = Identifier() if how.identify else None
        self._references: list[str] = []
        self._metrics: dict[str, Any] = {}
        self._short = 0.0

    def score(self, task: Task) -> LanguageScores:
        """The scores of one language."""
        rows = task.rows
        self._count([row.reference for row in rows])
        predictions = [row.prediction for row in rows]
        found = {key: _corpus(metric, predictions) for key, metric in self._metrics.items()}
        values = {key: score.score for key, (score, _) in found.items()}
        others, identified = self._languages(rows)
        return LanguageScores(
            code=task.language.code,
            name=task.language.name,
            script=task.language.script,
            task=task.name,
            phrases=len(rows),
            few_phrases=len(rows) < self._how.min_phrases,
            chrfpp=values.get("chrfpp"),
            bleu=values.get("bleu"),
            bleu_four_grams=found["bleu"][0].totals[3] if "bleu" in found else None,
            spbleu=values.get("spbleu"),
            ter=values.get("ter"),
            short=self._short,
            wrong_language=len(others) / identified if identified else None,
            identified=identified,
            worst=self._worst(rows, found["chrfpp"][1]) if "chrfpp" in found else (),
            other_languages=tuple(others[: self._how.worst]),
            references_sha256=hash_of(self._references),
            sources_known=any(row.source is not None for row in rows),
            **_shares(rows),
        )

    def _count(self, references: list[str]) -> None:
        """Counts the references' n-grams, unless they are those of the last language."""
        if references != self._references:
            self._references = references
            self._metrics = metrics.build(self._how.asked, [references])
            self._short = _share(len(self._tokens(text).split()) < 4 for text in references)

    def _worst(self, rows: Sequence[Translation], stats: list) -> tuple[SentenceScore, ...]:
        # As sacrebleu's sentence_score: the F-score of one sentence's own counts.
        scored = [self._metrics["chrfpp"]._compute_score_from_stats(one).score for one in stats]
        order = sorted(range(len(rows)), key=lambda row: (scored[row], row))
        return tuple(
            SentenceScore(row, rows[row].id, scored[row]) for row in order[: self._how.worst]
        )

    def _languages(self, rows: Sequence[Translation]) -> tuple[list[OtherLanguage], int | None]:
        """The translations that are not in English, and how many could be told."""
        if self._identifier is None:
            return [], None
        told = list(_identified(rows, self._identifier.language))
        return [one for one in told if one.language != "en"], len(told)


def hash_of(texts: Iterable[str]) -> str:
    """SHA-256 of the texts, a line each: the same for the same test set."""
    return hashlib.sha256("".join(f"{text}\n" for text in texts).encode()).hexdigest()


def _corpus(metric: Any, predictions: list[str]) -> tuple[Any, list]:
    """The corpus score and the counts of every sentence, which corpus_score keeps to itself."""
    stats = metric._extract_corpus_statistics(predictions, None)
    return metric._aggregate_and_compute(stats), stats


def _identified(
    rows: Sequence[Translation], language: Callable[[str], str | None]
) -> Iterator[OtherLanguage]:
    for number, row in enumerate(rows):
        found = language(row.prediction)
        if found is not None:
            yield OtherLanguage(number, row.id, found)


def _shares(rows: Sequence[Translation]) -> dict[str, Any]:
    with_source = [row for row in rows if row.source is not None]
    told = [row.truncated for row in rows if row.truncated is not None]
    return {
        "exact": _share(map(defects.is_exact, rows)),
        "empty": _share(map(defects.is_empty, rows)),
        "copied": _share(map(defects.is_copied, with_source)) if with_source else None,
        "truncated": _share(told) if told else None,
        "repeated": _share(map(defects.is_repeated, rows)),
        "over_long": _share(map(defects.is_over_long, rows)),
        "tokenized": _share(map(defects.is_tokenized, rows)),
    }


def _share(flags: Iterable[bool]) -> float:
    listed = list(flags)
    return sum(listed) / len(listed)
