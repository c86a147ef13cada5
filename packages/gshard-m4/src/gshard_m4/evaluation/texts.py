"""Translations that a program holds, ready to be scored."""

from collections.abc import Mapping, Sequence
from typing import Any

from gshard_m4 import languages
from gshard_m4.evaluation.translations import Find, Split, Task, Translation
from gshard_m4.input_error import InputError


def split_of(
    predictions: Mapping[str, Sequence[str]],
    references: Mapping[str, Sequence[str]] | Sequence[str],
    sources: Mapping[str, Sequence[str]] | None = None,
    *,
    name: str = "test",
    find: Find = languages.find,
) -> Split:
    """A test set from lists of strings.

    Args:
      predictions: code -> translations into English.
      references: code -> one reference for each, or one list for all languages.
      sources: code -> what was translated, if it is at hand.
      name: of the set.
      find: finds the language of a code.

    Raises:
      InputError: one language under two codes, lists of different lengths, languages without
        references, references without text, or anything but strings, such as sacrebleu's list of
        reference streams.
    """
    faults: list[str] = []
    tasks = []
    named: dict[str, str] = {}
    for given, said in predictions.items():
        wanted = references.get(given) if isinstance(references, Mapping) else references
        came_from = None if sources is None else sources.get(given)
        try:
            language = find(given)
        except ValueError as error:
            faults.append(str(error))
            continue
        wrong = _faults(given, said, wanted, came_from)
        if named.setdefault(language.code, given) != given:
            wrong.append(f"{given}: is {language.code}, as is {named[language.code]!r}")
        faults.extend(wrong)
        if not wrong and wanted is not None:
            origin = came_from or [None] * len(said)
            rows = map(_row, range(len(said)), origin, wanted, said)
            tasks.append(Task(language.code, language, tuple(rows)))
    if not predictions:
        faults.append("there are no predictions")
    if faults:
        raise InputError(faults)
    return Split(name, {}, None, tuple(tasks))


def _row(number: int, source: str | None, reference: str, prediction: str) -> Translation:
    return Translation(number, source, reference, prediction, None)


def _faults(code: str, said: Any, wanted: Any, came_from: Any) -> list[str]:
    if wanted is None:
        return [f"{code}: no references"]
    faults = []
    lists = {"predictions": said, "references": wanted, "sources": came_from}
    for name, texts in lists.items():
        if isinstance(texts, str):
            faults.append(f"{code}: {name} are one string; give a list of strings")
        elif texts is not None and not all(isinstance(text, str) for text in texts):
            kind = next(type(text).__name__ for text in texts if not isinstance(text, str))
            faults.append(f"{code}: {name} must be strings, one a phrase, not {kind} (references "
                          "are one list here, not a list of streams)")  # fmt: skip
        elif texts is not None and len(texts) != len(said):
            faults.append(f"{code}: {len(texts):,} {name}, {len(said):,} predictions")
    if not faults and not said:
        faults.append(f"{code}: no phrases")
    if not faults and not all(text.strip() for text in wanted):
        faults.append(f"{code}: a reference has no text")
    return faults
