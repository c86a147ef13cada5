"""Temperature mixtures of languages, described once for seqio and for the training feed.

A corpus is found by how a name begins, without importing seqio: `m4_sample` is the sample in the
package, `m4` a prepared directory, which is given with the name (`data_dir`) or registered once;
further directories are registered under `m4_<name>`. After that, a name says which languages:

    m4_all_en                             all that have training text
    m4_high_en  m4_mid_en  m4_low_en      a resource band of `gshard_m4.languages`
    m4_de_en                              one language, a task
    m4_de_fr_zh_en                        these languages
    m4_sample                             as `m4_sample_all_en`
"""

import dataclasses
import difflib
import importlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from gshard_m4 import languages
from gshard_m4.corpus import PREPARED_NAME, Corpus, open_corpus
from gshard_m4.rates import TEMPERATURE as TEMPERATURE
from gshard_m4.rates import temperature_rates as temperature_rates

ALL = "all"
BANDS = languages.BANDS

# Name -> module with a function `corpus()`, imported when its name is asked for.
_MODULES = {"m4_sample": "gshard_m4.sample.corpus"}
# Name -> directory, as `register` was told.
_DIRECTORIES: dict[str, Path] = {}


@dataclasses.dataclass(frozen=True)
class Mixture:
    """Languages of one corpus and how often training sees each.

    Attributes:
        name: the seqio name: a mixture's, or a task's where there is one language.
        corpus: where the text is.
        rates: language -> share of the training examples; they sum to 1.
        left_out: languages that the name covers and that have no training text.
    """

    name: str
    corpus: Corpus
    rates: Mapping[str, float]
    left_out: tuple[str, ...] = ()


def register(path: str | Path, *, name: str | None = None) -> Corpus:
    """Opens a prepared directory and makes its names known to `find` in this process.

    Args:
        path: what `gshard-m4 prepare` wrote.
        name: names begin with `m4_<name>`, or with `m4` where none is given.

    Raises:
        InputError: naming all that is wrong with the directory.
        ValueError: for a name that means something else, or another directory under this name.
    """
    prefix = PREPARED_NAME if name is None else f"{PREPARED_NAME}_{name}"
    taken = prefix in _MODULES or (name is not None and all(map(_is_taken, name.split("_"))))
    if taken or not re.fullmatch("[a-z0-9_]+", prefix):
        raise ValueError(
            f"register: the name {name!r} cannot be used; take one of a-z, 0-9 and _ that is no"
            f" language, band, 'all' or 'sample'"
        )
    path = Path(path).absolute()
    if _DIRECTORIES.get(prefix, path) != path:
        raise ValueError(
            f"register: {prefix!r} is {str(_DIRECTORIES[prefix])!r} already; give {str(path)!r}"
            " another name"
        )
    corpus = open_corpus(path, name=prefix)
    _DIRECTORIES[prefix] = path
    return corpus


def find(
    mixture_or_task_name: str,
    *,
    data_dir: str | Path | None = None,
    temperature: float = TEMPERATURE,
    maximum: int | None = None,
    minimum_share: float = 0.0,
) -> Mixture:
    """The mixture of that name, or one task as a mixture of one language.

    Args:
        mixture_or_task_name: see the module.
        data_dir: the prepared directory that names beginning with `m4` are in, instead of what is
            registered.
        temperature: T of the rates, see `temperature_rates`.
        maximum: caps sizes before the temperature acts.
        minimum_share: the least share of a language.

    Raises:
        InputError: where the directory cannot be used.
        ValueError: for a name that no corpus has, with the nearest names; for languages asked for
            by name that have no training text; for impossible rates.
    """
    corpus = _find_corpus(mixture_or_task_name, data_dir)
    mixed = mixture_of(
        corpus,
        languages_of(corpus, mixture_or_task_name),
        name=mixture_or_task_name,
        temperature=temperature,
        maximum=maximum,
        minimum_share=minimum_share,
    )
    if mixed.left_out and _group(corpus, mixture_or_task_name) not in (None, ALL, *BANDS):
        raise ValueError(
            f"mixture {mixture_or_task_name!r}: no training text in {', '.join(mixed.left_out)}"
        )
    return mixed


def mixture_of(
    corpus: Corpus,
    chosen: Iterable[str] | None = None,
    *,
    name: str | None = None,
    temperature: float = TEMPERATURE,
    maximum: int | None = None,
    minimum_share: float = 0.0,
) -> Mixture:
    """Languages of a corpus, all where none are chosen, at rates by the size of training text.

    Raises:
        ValueError: where none of them has training text, or for impossible rates.
    """
    counts = corpus.counts("train")
    chosen = list(counts if chosen is None else chosen)
    left_out = tuple(code for code in chosen if not counts[code])
    if len(left_out) == len(chosen):
        what = "the corpus has no language of it"
        if left_out:
            what = f"no training text in {', '.join(left_out)}"
        raise ValueError(f"mixture {name or corpus.name!r}: {what}")
    rates = temperature_rates(
        {code: counts[code] for code in chosen if counts[code]},
        temperature=temperature,
        maximum=maximum,
        minimum_share=minimum_share,
    )
    return Mixture(name or corpus.name, corpus, rates, left_out)


def languages_of(corpus: Corpus, name: str) -> list[str]:
    """The languages that a name covers, with or without training text.

    Raises:
        ValueError: for a name that the corpus does not have, with the nearest names.
    """
    group = _group(corpus, name)
    if group == ALL:
        return list(corpus.pairs)
    if group in BANDS:
        return _in_band(corpus, group)
    codes = _codes(corpus, group.split("_")) if group else None
    if codes is None:
        raise ValueError(_unknown(name, corpus))
    return codes


def mixture_names(corpus: Corpus) -> list[str]:
    """The mixtures that every corpus has: all languages, and the bands that it has some of."""
    bands = [band for band in BANDS if _in_band(corpus, band)]
    return [f"{corpus.name}_{group}_en" for group in (ALL, *bands)]


def list_name(corpus: Corpus, chosen: Iterable[str]) -> str:
    """The name of the mixture of these languages."""
    return f"{corpus.name}_{'_'.join(chosen)}_en"


def _find_corpus(name: str, data_dir: str | Path | None) -> Corpus:
    if data_dir is not None:
        return open_corpus(data_dir)
    for prefix in sorted({**_MODULES, **_DIRECTORIES}, key=len, reverse=True):
        if name == prefix or name.startswith(prefix + "_"):
            if prefix in _MODULES:
                return importlib.import_module(_MODULES[prefix]).corpus()
            return open_corpus(_DIRECTORIES[prefix], name=prefix)
    message = _unknown(name, None)
    if re.fullmatch(f"{PREPARED_NAME}_.*_en", name) and PREPARED_NAME not in _DIRECTORIES:
        message += (
            " Names of a prepared directory need it: give data_dir (in gin:"
            ' feed.training_feed.data_dir = "/path"), or call gshard_m4.mixture.register first.'
        )
    raise ValueError(message)


def _group(corpus: Corpus, name: str) -> str | None:
    """The part of a name that says which languages: all of them where it is the corpus's."""
    if name == corpus.name:
        return ALL
    found = re.fullmatch(f"{corpus.name}_(.*)_en", name)
    return found and found[1]


def _codes(corpus: Corpus, words: list[str]) -> list[str] | None:
    """The codes that words joined by _ spell, in the corpus's order; None for anything else."""
    found: set[str] = set()
    rest = words
    while rest:
        code = next((c for n in (2, 1) if (c := "_".join(rest[:n])) in corpus.pairs), None)
        if code is None or code in found:
            return None
        found.add(code)
        rest = rest[code.count("_") + 1 :]
    return [code for code in corpus.pairs if code in found]


def _in_band(corpus: Corpus, band: str) -> list[str]:
    bands = {one.code: one.band for one in languages.LANGUAGES}
    return [code for code in corpus.pairs if bands.get(code) == band]


def _is_taken(word: str) -> bool:
    """Whether a word of a name means something already."""
    if word in ("", ALL, "en", *BANDS):
        return True
    try:
        languages.find(word, variants=True, others=True)
    except ValueError:
        return False
    return True


def _unknown(name: str, corpus: Corpus | None) -> str:
    if corpus is None:
        known = [*_MODULES, *_DIRECTORIES]
    else:
        known = [corpus.name, *mixture_names(corpus), *map(corpus.task_name, corpus.pairs)]
        stem = name.removeprefix(corpus.name + "_").removesuffix("_en")
        try:
            # Another code for the language, such as M4's old ones.
            known = [corpus.task_name(languages.find(stem).code), known[0]]
            return f"unknown mixture or task {name!r}; did you mean {', '.join(known)}?"
        except ValueError:
            pass
    near = difflib.get_close_matches(name, known, n=3) or known[:3]
    return f"unknown mixture or task {name!r}; did you mean {', '.join(near)}?"
