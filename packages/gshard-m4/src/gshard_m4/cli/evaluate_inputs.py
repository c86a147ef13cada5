"""What the flags of `gshard-m4 evaluate` name, read and checked before anything is scored."""

import argparse
import functools
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gshard_m4 import languages
from gshard_m4.evaluation import metrics
from gshard_m4.evaluation.baseline import Against, read_baseline
from gshard_m4.evaluation.identify import Identifier
from gshard_m4.evaluation.kept import kept_name, read_kept
from gshard_m4.evaluation.merged import Merged, read_merged
from gshard_m4.evaluation.pairing import Choice
from gshard_m4.evaluation.reading import read_splits, translations_folder
from gshard_m4.evaluation.replacing import output_faults
from gshard_m4.evaluation.score_files import read_scores
from gshard_m4.evaluation.sides import OF_WHICH_LANGUAGE
from gshard_m4.evaluation.tables import read_sizes
from gshard_m4.evaluation.translations import Find, Split, read_translations
from gshard_m4.input_error import InputError

# What is always written.
LISTING = "scores.json"
RESULTS = ("report.html", "scores.csv", LISTING)

# Starting processes takes longer than scoring fewer phrases.
_PHRASES_WORTH_PROCESSES = 5_000


@dataclass
class Inputs:
    """Everything that scoring needs; `baseline_splits` is empty where no test is asked for."""

    asked: metrics.Asked
    name: str = ""
    splits: list[Split] = field(default_factory=list)
    sizes: dict[str, int] | None = None
    merged: list[Merged] = field(default_factory=list)
    against: Against | None = None
    baseline_splits: list[Split] = field(default_factory=list)
    processes: int = 1


def read_inputs(options: argparse.Namespace) -> Inputs:
    """The inputs.

    Raises:
      InputError: all that is wrong with any of them.
    """
    faults = list(_flag_faults(options))
    everything = {"variants": True, "others": True} if options.any_language else {}
    find: Find = functools.partial(languages.find, **everything)
    asked = metrics.Asked(
        options.metrics, options.tokenize, options.spbleu_sha256 or metrics.FLORES200_SHA256
    )
    path = options.hypotheses or options.translations
    inputs = Inputs(asked, options.system or _name(path))
    _try(faults, metrics.check, asked)
    identify = None if options.no_identify else _try(faults, Identifier)
    language = _language(options.language, find, faults)
    codes = [_language(code, find, faults) for code in options.languages or ()]
    choice = Choice(
        options.set or "test",
        find,
        languages=tuple(one.code for one in codes if one) if options.languages else None,
        as_is=options.as_is,
        use_sources=not options.no_sources,
        identify=identify.language if identify else None,
    )
    inputs.splits = _try(faults, _splits, options, choice, language) or []
    if options.output.is_dir():
        faults.extend(output_faults(options.output, _named_as_results(inputs, options), LISTING))
    if options.train_sizes is not None:
        inputs.sizes = _try(faults, read_sizes, options.train_sizes, find)
    found = [_try(faults, read_merged, one, find) for one in options.merge_scores]
    inputs.merged = [one for one in found if one is not None]
    _read_baseline(inputs, options, choice, language, faults)
    if options.language is not None:
        # It has been said that there is no such language.
        faults = [fault for fault in faults if OF_WHICH_LANGUAGE not in fault]
    if faults:
        raise InputError(faults)
    phrases = sum(len(task.rows) for split in inputs.splits for task in split.tasks)
    inputs.processes = options.processes if phrases >= _PHRASES_WORTH_PROCESSES else 1
    return inputs


def _try(faults: list[str], read: Callable[..., Any], *arguments: Any) -> Any:
    """What `read` returns, or None and its faults."""
    try:
        return read(*arguments)
    except InputError as error:
        faults.extend(fault for fault in error.faults if fault not in faults)
        return None


def _flag_faults(options: argparse.Namespace):
    yield from output_faults(options.output, RESULTS, LISTING)
    for flag in ("hypotheses", "translations", "references", "sources", "baseline_hypotheses"):
        given = getattr(options, flag)
        if given is not None and given.resolve() == options.output.resolve() and given.is_dir():
            yield (f"--output={options.output} is the folder of --{flag.replace('_', '-')}; give "
                   "another")  # fmt: skip
    for flag in ("min_phrases", "processes", "samples"):
        value = getattr(options, flag)
        if value is not None and value < 1:
            yield f"--{flag.replace('_', '-')}={value}: at least 1"
    if options.baseline is not None and options.baseline_hypotheses is not None:
        yield "--baseline and --baseline-hypotheses: give one of them"
    if options.significance and options.baseline is None and options.baseline_hypotheses is None:
        yield (f"--significance={options.significance} is against which system? Give --baseline or "
               "--baseline-hypotheses")  # fmt: skip
    if options.set is not None and not re.fullmatch(r"[\w.-]+", options.set):
        yield f"--set={options.set}: letters, digits, '_', '-' and '.' only, for names of files"
    if options.band_bounds is not None and options.train_sizes is None:
        yield "--band-bounds needs --train-sizes"
    if options.no_sources and options.sources is not None:
        yield "--no-sources and --sources: give one of them"
    path = options.hypotheses or options.translations
    if options.translations is not None or translations_folder(path) is not None:
        for flag in ("references", "sources", "language", "set", "no_sources"):
            if getattr(options, flag):
                yield (f"--{flag.replace('_', '-')}: {path} is a run's translations, which have "
                       "references, sources, languages and names of their own")  # fmt: skip


def _named_as_results(inputs: Inputs, options: argparse.Namespace) -> list[str]:
    """Files in the folder for the report that are named as it will name some of its own."""
    kept = {kept_name(split.name) for split in inputs.splits if options.keep_translations}
    pictures = tuple(
        f"{split.name}-{key}-" for split in inputs.splits for key in inputs.asked.keys
    ) if options.pictures else ()  # fmt: skip
    return [
        path.name for path in options.output.iterdir()
        if path.name in kept
        or (path.suffix in (".png", ".svg") and path.name.startswith(pictures))
    ]  # fmt: skip


def _name(path: Path) -> str:
    """The system's name: that of its folder or file, or of the run that has the translations."""
    parts = path.resolve().parts
    if "translations" in parts[-2:]:
        return parts[-2 if parts[-1] == "translations" else -3]
    return parts[-1].split(".")[0]


def _language(code: str | None, find: Find, faults: list[str]) -> languages.Language | None:
    try:
        return None if code is None else find(code)
    except ValueError as error:
        faults.append(str(error))
        return None


def _splits(
    options: argparse.Namespace, choice: Choice, language: languages.Language | None
) -> list[Split]:
    if options.hypotheses is not None:
        if translations_folder(options.hypotheses) is not None:
            return read_splits(options.hypotheses, None, None, choice)
        given = (options.hypotheses, options.references, options.sources, choice)
        return read_splits(*given, language=language)
    # The folder itself may be wrong, and read_translations says best in which way.
    if choice.languages is None or translations_folder(options.translations) is None:
        return read_translations(options.translations, find=choice.find)
    return read_splits(options.translations, None, None, choice)


def _read_baseline(
    inputs: Inputs,
    options: argparse.Namespace,
    choice: Choice,
    language: languages.Language | None,
    faults: list[str],
) -> None:
    if options.baseline is not None:
        inputs.against = _try(faults, read_baseline, options.baseline, choice.find)
        if options.significance and inputs.against is not None:
            kept = _try(faults, _kept, options.baseline, choice.find)
            inputs.baseline_splits = kept or []
    if options.baseline_hypotheses is not None:
        codes = {task.language.code for split in inputs.splits for task in split.tasks}
        theirs = Choice(choice.name, choice.find, tuple(codes), partial=True, as_is=True)
        path, own = options.baseline_hypotheses, translations_folder(options.baseline_hypotheses)
        beside = (None, None, theirs) if own else (options.references, options.sources, theirs)
        only = None if own else language
        found = _try(faults, lambda: read_splits(path, *beside, language=only))
        inputs.baseline_splits = found or []


def _kept(path: Path, find: Find) -> list[Split]:
    kept = None
    if path.suffix not in (".csv", ".tsv"):
        kept = read_kept(path if path.is_dir() else path.parent, read_scores(path), find)
    if kept is None:
        raise InputError([f"--baseline={path} has no translations to test against; give them as "
                          "--baseline-hypotheses"])  # fmt: skip
    return kept
