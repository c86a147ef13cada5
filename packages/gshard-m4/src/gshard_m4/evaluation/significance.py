"""Whether a system differs from its baseline, language by language: sacrebleu's paired tests.

P values are corrected for the number of languages by Holm's method (Holm 1979, "A simple
sequentially rejective multiple test procedure").
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Any

from gshard_m4.evaluation import metrics
from gshard_m4.evaluation.evaluate import changed
from gshard_m4.evaluation.scores import LanguageScores, Paired, Scores, Significance, SplitScores
from gshard_m4.evaluation.translations import Split
from gshard_m4.input_error import InputError

METHODS = {"bootstrap": "bs", "randomization": "ar"}
SAMPLES = {"bootstrap": 1000, "randomization": 10_000}
# For each language: the smallest p is 1 / (samples + 1), and Holm multiplies it by the languages.
SAMPLES_PER_LANGUAGE = 25


@dataclass(frozen=True)
class Question:
    """One language of one set: what two systems said, and the references."""

    split: str
    code: str
    baseline: tuple[str, ...]
    system: tuple[str, ...]
    references: tuple[str, ...]


def questions(baseline: Sequence[Split], system: Sequence[Split]) -> list[Question]:
    """The languages that both systems have with the same references."""
    theirs = {(split.name, task.language.code): task for split in baseline for task in split.tasks}
    found = []
    for split in system:
        for task in split.tasks:
            other = theirs.get((split.name, task.language.code))
            references = tuple(row.reference for row in task.rows)
            if other is None or tuple(row.reference for row in other.rows) != references:
                continue
            base, own = (tuple(row.prediction for row in one.rows) for one in (other, task))
            found.append(Question(split.name, task.language.code, base, own, references))
    return found


def answer(
    asked: Sequence[Question],
    how: metrics.Asked,
    method: str,
    *,
    samples: int | None = None,
    processes: int = 1,
) -> tuple[dict[tuple[str, str], dict[str, Paired]], Significance]:
    """The paired test of every question in every metric, by set and language, Holm-corrected.

    Raises:
      InputError: nothing is asked.
    """
    if not asked:
        raise InputError(["--significance: the baseline's translations and these have no language "
                          "with the same references in common"])  # fmt: skip
    count = samples or max(SAMPLES[method], SAMPLES_PER_LANGUAGE * len(asked))
    arguments = ([how] * len(asked), [method] * len(asked), [count] * len(asked))
    if processes > 1 and len(asked) > 1:
        with ProcessPoolExecutor(min(processes, len(asked)), get_context("spawn")) as pool:
            found = list(pool.map(_test, asked, *arguments))
    else:
        found = [_test(one, how, method, count) for one in asked]
    raw = {(one.split, one.code): tests for one, (tests, _) in zip(asked, found, strict=True)}
    signatures = found[0][1]
    return _corrected(raw), Significance(method, count, signatures, len(asked))


def with_significance(
    scores: Scores, tests: Mapping[tuple[str, str], dict[str, Paired]], how: Significance
) -> Scores:
    """The scores with the tests against their baseline."""

    def add(split: SplitScores, one: LanguageScores) -> LanguageScores:
        return replace(one, paired=tests.get((split.name, one.code), {}))

    return changed(replace(scores, significance=how), add)


def holm(values: Sequence[float]) -> list[float]:
    """P values corrected for being as many as they are, in the same order."""
    order = sorted(range(len(values)), key=lambda place: values[place])
    found = [0.0] * len(values)
    largest = 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (len(values) - rank) * values[place]))
        found[place] = largest
    return found


def _test(
    question: Question, how: metrics.Asked, method: str, samples: int
) -> tuple[dict[str, Paired], dict[str, str]]:
    """The test in every metric, and the signatures; p is not yet corrected.

    Where both have the same score p is 1: PairedTest finds no resample with a larger difference
    than 0, and so takes systems that do not differ for different ones.
    """
    from sacrebleu.significance import PairedTest

    systems: list[tuple[str, Sequence[str]]] = [
        ("baseline", question.baseline), ("system", question.system)
    ]  # fmt: skip
    # Randomization says nothing of intervals: those are then from a bootstrap of usual size.
    intervals = 0 if method == "randomization" else -1
    found, signatures = {}, {}
    # One at a time: PairedTest keeps results by a name that BLEU and spBLEU share.
    for key, metric in metrics.build(how, [question.references]).items():
        test = PairedTest(
            systems, {key: metric}, None, METHODS[method], samples, n_ar_confidence=intervals
        )
        signature, results = test()
        name = next(iter(signature))
        base, own = results[name]
        found[key] = _paired(own, base)
        signatures[key] = signature[name].format()
    return found, signatures


def _paired(own: Any, base: Any) -> Paired:
    p = 1.0 if own.score == base.score else float(own.p_value)
    ends = (own.mean, own.ci, base.mean, base.ci)
    return Paired(p, p, *map(float, ends))


def _corrected(
    raw: Mapping[tuple[str, str], dict[str, Paired]],
) -> dict[tuple[str, str], dict[str, Paired]]:
    """Holm's correction over the languages of a set, for each metric by itself."""
    done: dict[tuple[str, str], dict[str, Paired]] = {place: {} for place in raw}
    keys = {key for tests in raw.values() for key in tests}
    for split in {place[0] for place in raw}:
        for key in keys:
            places = [place for place in raw if place[0] == split and key in raw[place]]
            values = holm([raw[place][key].p for place in places])
            for place, value in zip(places, values, strict=True):
                done[place][key] = replace(raw[place][key], p_holm=value)
    return done
