"""Temperature mixtures of languages, described once for seqio and for the training feed.

A corpus is found by the name of its mixture, or of one of its tasks, without importing seqio.
"""

import contextlib
import dataclasses
import difflib
import importlib
from collections.abc import Mapping

from gshard_m4 import languages
from gshard_m4.corpus import Corpus

TEMPERATURE = 5.0

# Mixture name -> module with a function `corpus()`, imported when its name is asked for.
_MODULES = {"m4_sample": "gshard_m4.sample.corpus"}


@dataclasses.dataclass(frozen=True)
class Mixture:
    """Languages of one corpus and how often training sees each.

    Attributes:
        name: the seqio name: a mixture's, or a task's where there is one language.
        corpus: where the text is.
        rates: language -> share of the training examples; they sum to 1.
    """

    name: str
    corpus: Corpus
    rates: Mapping[str, float]


def temperature_rates(
    counts: Mapping[str, int], *, temperature: float = TEMPERATURE
) -> dict[str, float]:
    """Shares p ~ (n / sum n)^(1 / T), which sum to 1.

    T = 1 follows the sizes, a large T makes all equal; M4 uses T = 5 (arXiv 1907.05019, 3.2).

    Raises:
        ValueError: where a count or the temperature is not positive.
    """
    bad = {name: n for name, n in counts.items() if n <= 0}
    if bad or not counts:
        raise ValueError(f"temperature_rates: every count must be positive, got {bad or 'none'}")
    if temperature <= 0:
        raise ValueError(f"temperature_rates: temperature must be positive, got {temperature}")
    total = sum(counts.values())
    powers = {name: (n / total) ** (1 / temperature) for name, n in counts.items()}
    return {name: power / sum(powers.values()) for name, power in powers.items()}


def mixture_of(corpus: Corpus) -> Mixture:
    """All languages of a corpus at T = 5 over the sizes of their training text."""
    return Mixture(corpus.name, corpus, temperature_rates(corpus.counts("train")))


def find(mixture_or_task_name: str) -> Mixture:
    """The mixture of that name, or one task as a mixture of one language.

    Raises:
        ValueError: for a name that no corpus has, with the nearest names.
    """
    for name, module in _MODULES.items():
        if mixture_or_task_name == name:
            return mixture_of(importlib.import_module(module).corpus())
        if mixture_or_task_name.startswith(name + "_"):
            return _one_task(importlib.import_module(module).corpus(), mixture_or_task_name)
    raise ValueError(_unknown(mixture_or_task_name, list(_MODULES)))


def _one_task(corpus: Corpus, name: str) -> Mixture:
    tasks = {corpus.task_name(language): language for language in corpus.pairs}
    if name in tasks:
        return Mixture(name, corpus, {tasks[name]: 1.0})
    with contextlib.suppress(ValueError):
        # Another code for the language, such as M4's old ones.
        stem = name.removeprefix(corpus.name + "_").removesuffix("_en")
        tasks = {corpus.task_name(languages.find(stem).code): stem}
    raise ValueError(_unknown(name, [corpus.name, *tasks]))


def _unknown(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=3) or known[:3]
    return f"unknown mixture or task {name!r}; did you mean {', '.join(near)}?"
