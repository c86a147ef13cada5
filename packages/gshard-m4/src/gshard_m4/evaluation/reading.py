"""The test sets that the flags of a command name, whatever form they are in.

Three forms: a folder of translations that decoding wrote, whose lines have their references; lines
that have translation and reference both; and hypotheses with references beside them.
"""

import json
from dataclasses import replace
from pathlib import Path

from gshard_m4 import languages
from gshard_m4.evaluation.pairing import Choice, pair
from gshard_m4.evaluation.records import Record
from gshard_m4.evaluation.sides import Side, Text, read_side
from gshard_m4.evaluation.translations import MANIFEST, Split, read_translations
from gshard_m4.input_error import InputError


def read_splits(
    hypotheses: Path,
    references: Path | None,
    sources: Path | None,
    choice: Choice,
    *,
    language: languages.Language | None = None,
) -> list[Split]:
    """Every split, whole and right.

    Args:
      hypotheses: a file or folder; the folder of a run or of its translations needs no more.
      references: a file or folder; None where the hypotheses' own lines have them.
      sources: a file or folder, if there is one.
      choice: what of it to score.
      language: the language of files whose lines and names do not say one.

    Raises:
      InputError: everything that is missing, malformed or does not fit together.
    """
    folder = translations_folder(hypotheses)
    if folder is not None:
        if references is not None or sources is not None or language is not None:
            raise InputError([
                f"--hypotheses={hypotheses} is a run's translations, which have references, sources"
                " and languages of their own; leave out --references, --sources and --language"
            ])  # fmt: skip
        return [_chosen(split, choice) for split in read_translations(folder, find=choice.find)]
    faults: list[str] = []
    said = read_side(hypotheses, "hypotheses", faults, language=language, find=choice.find)
    wanted = _references(said, references, choice, faults, language)
    beside = None
    if sources is not None:
        beside = read_side(sources, "sources", faults, language=language, find=choice.find)
    split = pair(said, wanted, beside, choice, faults) if wanted is not None else None
    if faults or split is None:
        raise InputError(faults)
    return [split]


def translations_folder(path: Path) -> Path | None:
    """The folder of translations that a path is, or that a run's folder has; None if neither."""
    for folder in (path, path / "translations"):
        manifests = [folder / MANIFEST, *folder.glob(f"*/{MANIFEST}")]
        if any(_is_of_translations(manifest) for manifest in manifests):
            return folder
    return next(filter(_is_interrupted, (path / "translations", path, path.parent)), None)


def _is_interrupted(folder: Path) -> bool:
    """Whether decoding began to write its translations there."""
    return folder.name == "translations" and any(folder.glob("*/m4_*_en.jsonl"))


def _is_of_translations(manifest: Path) -> bool:
    try:
        found = json.loads(manifest.read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and "tasks" in found


def _chosen(split: Split, choice: Choice) -> Split:
    """The split with the languages that are asked for."""
    if choice.languages is None:
        return split
    there = {task.language.code for task in split.tasks}
    missing = sorted(set(choice.languages) - there)
    if missing and not choice.partial:
        raise InputError(
            f"{split.name} has no {code}, which --languages asks for" for code in missing
        )
    tasks = tuple(task for task in split.tasks if task.language.code in choice.languages)
    left_out = tuple(sorted(there - set(choice.languages)))
    return replace(split, tasks=tasks, not_scored=left_out)


def _references(
    said: Side,
    references: Path | None,
    choice: Choice,
    faults: list[str],
    language: languages.Language | None,
) -> Side | None:
    if references is None:
        records = [record for text in said.by_code.values() for record in text.records]
        if not records and faults:
            return None
        if records and all("reference" in record.fields for record in records):
            return said
        faults.append(f"--references is missing: the lines of --hypotheses={said.path} have no "
                      "references of their own")  # fmt: skip
        return None
    if (references / MANIFEST).is_file():
        return _prepared(references, choice.name, faults)
    return read_side(references, "references", faults, language=language, find=choice.find)


def _prepared(folder: Path, split: str, faults: list[str]) -> Side:
    """A held-out set of a prepared directory: English and sources of every language."""
    from gshard_m4.prepared import open_prepared

    side = Side(folder)
    try:
        prepared = open_prepared(folder)
        for code in [code for code, rows in prepared.counts(split).items() if rows]:
            pairs = prepared.pairs(code, split)
            records = [
                Record(line, {"source": source, "reference": english})
                for line, (source, english) in enumerate(pairs, start=1)
            ]
            side.by_code[code] = Text(folder / code, records)
    except InputError as error:
        faults.extend(error.faults)
    return side
