"""The two vocabularies of a prepared directory: learnt from its training text, then measured."""

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gshard_m4.asked_languages import codes_in
from gshard_m4.corpus import SOURCE_MODEL, TARGET_MODEL, Pair
from gshard_m4.input_error import InputError
from gshard_m4.prepared import Prepared
from gshard_m4.vocabulary import coverage, sampling
from gshard_m4.vocabulary.coverage import Coverage
from gshard_m4.vocabulary.measuring import Track, cover
from gshard_m4.vocabulary.model import Vocabulary, tag
from gshard_m4.vocabulary.settings import Settings
from gshard_m4.vocabulary.training import learn
from gshard_m4.writing import write_all

COVERAGE = "coverage.json"

# Of all languages' text together, SentencePiece takes at least this share of its characters; each
# language's own are required besides. It takes no lower number.
_POOLED_COVERAGE = 0.98
# Languages share their English: so many times the rows are read for the different ones among them.
_ENGLISH_ROWS = 4

_PREFIX = "vocabulary: "
SCHEMA_VERSION = 1


@dataclasses.dataclass(frozen=True)
class Built:
    """Where vocabularies were written, and how they fit.

    Attributes:
        folder: holds source.model, target.model and coverage.json.
        english: the coverage of the target side.
        languages: the coverage of each source language, in the order of their codes.
        sentences: sentences that the source vocabulary was learnt from.
        english_sentences: different English sentences that the target vocabulary was learnt from.
    """

    folder: Path
    english: Coverage
    languages: tuple[Coverage, ...]
    sentences: int
    english_sentences: int


def build(
    prepared: Prepared,
    settings: Settings,
    *,
    folder: Path | None = None,
    overwrite: bool = False,
    track: Track = lambda codes, what: codes,
    stage: Callable[[str], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
) -> Built:
    """Learns both vocabularies, writes them with their coverage, and returns it.

    Args:
        prepared: whose training rows are learnt from.
        settings: sizes, sampling, characters.
        folder: where files are written, by default the directory's own `vocabulary`.
        overwrite: whether vocabularies that are there are replaced.
        track: shows progress over languages.
        stage: is entered with a line while a model is learnt.

    Raises:
        InputError: naming all that is wrong; nothing is then written.
    """
    folder = folder or prepared.source_vocabulary.parent
    faults = _faults(prepared, settings)
    there = [name for name in (SOURCE_MODEL, TARGET_MODEL, COVERAGE) if (folder / name).exists()]
    if there and not overwrite:
        faults.append(f"{folder}: has {', '.join(there)} already; --force replaces them")
    if faults:
        raise InputError(faults)
    codes = _codes(prepared, settings.languages or prepared.manifest.languages)
    counts = {code: n for code, n in prepared.counts("train").items() if code in codes}
    sample = sampling.quotas(counts, settings.sentences, settings.temperature)
    with stage(f"learning {settings.source_size:,} pieces from {sum(sample.values()):,} sentences"):
        source = _try(faults, lambda: _learn_source(prepared, sample, settings, track))
    english = _english(prepared, counts, settings, track)
    with stage(f"learning {settings.target_size:,} pieces from {len(english):,} English sentences"):
        target = _try(faults, lambda: _learn_target(english, settings))
    if faults:
        raise InputError(dict.fromkeys(faults))
    return _write(prepared, folder, sample, english, (source, target), settings, track)


def _faults(prepared: Prepared, settings: Settings) -> list[str]:
    faults = []
    for name in ("source_size", "target_size", "sentences", "temperature"):
        if (value := getattr(settings, name)) <= 0:
            faults.append(f"--{name.replace('_', '-')}={value} must be positive")
    if not 0 < settings.character_coverage <= 1:
        faults.append(
            f"--character-coverage={settings.character_coverage} must be above 0 and at most 1"
        )
    known = list(prepared.manifest.languages)
    faults += codes_in(known, settings.languages, str(prepared.path))[1]
    chosen = settings.languages or known
    if not faults and not any(prepared.counts("train")[code] for code in _codes(prepared, chosen)):
        faults.append(f"{prepared.path}: has no training rows to learn from")
    return faults


def _codes(prepared: Prepared, asked: Iterable[str]) -> list[str]:
    return sorted(codes_in(prepared.manifest.languages, asked, "")[0])


def _try(faults: list[str], learnt: Callable[[], bytes]) -> bytes:
    """The model; empty where a fault is added, so that both sizes are tried before any is told."""
    try:
        return learnt()
    except InputError as error:
        faults += error.faults
    except ValueError as error:
        faults.append(str(error))
    return b""


def _learn_source(
    prepared: Prepared, sample: Mapping[str, int], settings: Settings, track: Track
) -> bytes:
    characters: set[str] = set()
    for code in track(list(sample), "characters"):
        texts = (source for source, _ in _rows(prepared, code, sampling.CHARACTER_ROWS))
        characters |= sampling.frequent_characters(texts, settings.character_coverage)

    tags = [tag(code) for code in sample] if settings.tags else []
    sentences = _sources(prepared, sample, track)
    return _learn("source", sentences, characters, settings, tags)


def _sources(prepared: Prepared, sample: Mapping[str, int], track: Track) -> Iterator[str]:
    for code in track(list(sample), "sentences"):
        yield from (source for source, _ in _rows(prepared, code, sample[code]))


def _learn_target(english: Sequence[str], settings: Settings) -> bytes:
    chosen = [english[i] for i in sampling.spread(len(english), sampling.CHARACTER_ROWS)]
    characters = sampling.frequent_characters(chosen, settings.character_coverage)
    return _learn("target", english, characters, settings, [])


def _learn(
    side: str, texts: Iterable[str], characters: set[str], settings: Settings, tags: list[str]
) -> bytes:
    try:
        return learn(
            texts,
            size=getattr(settings, f"{side}_size"),
            character_coverage=_POOLED_COVERAGE,
            byte_fallback=settings.byte_fallback,
            required_chars="".join(sorted(characters)),
            user_defined_symbols=tags,
        )
    except InputError:
        raise  # Of the files that are read.
    except ValueError as error:
        raise ValueError(f"--{side}-size: {str(error).removeprefix(_PREFIX)}") from None


def _english(
    prepared: Prepared, counts: Mapping[str, int], settings: Settings, track: Track
) -> list[str]:
    """Different English sentences, in a fixed order."""
    wanted = sampling.quotas(counts, settings.sentences * _ENGLISH_ROWS, settings.temperature)
    found: dict[str, None] = {}
    for code in track(list(wanted), "English"):
        for _, english in _rows(prepared, code, wanted[code]):
            found[english] = None
    texts = list(found)
    return [texts[i] for i in sampling.spread(len(texts), settings.sentences)]


def _rows(prepared: Prepared, code: str, take: int) -> Iterator[Pair]:
    pairs = prepared.pairs(code, "train")
    return sampling.pick(pairs, sampling.spread(len(pairs), take))


def _write(
    prepared: Prepared,
    folder: Path,
    sample: Mapping[str, int],
    english: Sequence[str],
    models: tuple[bytes, bytes],
    settings: Settings,
    track: Track,
) -> Built:
    source = Vocabulary(folder / SOURCE_MODEL, models[0])
    target = Vocabulary(folder / TARGET_MODEL, models[1])
    of_english, of_languages = cover(prepared, list(sample), source, target, track)
    learnt = sum(sample.values())
    built = Built(folder, of_english, tuple(of_languages), learnt, len(english))
    report = _report(built, sample, settings)
    files = {
        SOURCE_MODEL: models[0],
        TARGET_MODEL: models[1],
        COVERAGE: json.dumps(report, indent=1) + "\n",
    }
    try:
        write_all(folder, files)
    except OSError as error:
        raise InputError([f"{folder}: cannot be written ({error})"]) from None
    return built


def _report(built: Built, sample: Mapping[str, int], settings: Settings) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "created_by": f"gshard-m4 {version('gshard-m4')}",
        "settings": dataclasses.asdict(settings),
        "sentences": dict(sample),
        "english_sentences": built.english_sentences,
        "english": coverage.as_json(built.english),
        "languages": {one.code: coverage.as_json(one) for one in built.languages},
        "scripts": {
            one.script: coverage.as_json(one) for one in coverage.by_script(built.languages)
        },
    }
