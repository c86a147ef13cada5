"""Translations as decoding writes them, read and checked as a whole.

A folder of translations holds one folder a split: `<split>/<task>.jsonl` with one object a line
(`id`, `source`, `reference`, `prediction`, `truncated`) and `<split>/manifest.json`, written last,
with the number of lines of every task, the decoder's settings and the checkpoint's step;
experts.json may lie there or in the folder of all splits.
What is read is complete and right, or `TranslationsError` lists everything that is not.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gshard_m4 import languages
from gshard_m4.evaluation.experts import Experts, find_experts
from gshard_m4.evaluation.records import folded
from gshard_m4.input_error import InputError

Find = Callable[[str], languages.Language]

MANIFEST = "manifest.json"
_FIELDS = {"id": int, "source": str, "reference": str, "prediction": str, "truncated": bool}
_KINDS = {int: "a whole number", str: "a string", bool: "true or false", dict: "an object"}


class TranslationsError(InputError):
    """Every fault found in a folder of translations, one line each in `faults`."""


@dataclass(frozen=True, slots=True)
class Translation:
    """One phrase; `source` and `truncated` are None where nobody says."""

    id: int | str
    source: str | None
    reference: str
    prediction: str
    truncated: bool | None


@dataclass(frozen=True)
class Task:
    """All translations of one language in one split."""

    name: str
    language: languages.Language
    rows: tuple[Translation, ...]


@dataclass(frozen=True)
class Split:
    """One held-out set; `decoder` and `checkpoint_step` are the manifest's, where there is one.

    `experts` is what the run recorded of its experts. `not_scored` names languages that the set
    has and that were left out on request.
    """

    name: str
    decoder: dict[str, Any]
    checkpoint_step: int | None
    tasks: tuple[Task, ...]
    experts: Experts | None = None
    not_scored: tuple[str, ...] = ()


def read_translations(folder: Path, *, find: Find = languages.find) -> list[Split]:
    """Every split below `folder`, or the one that `folder` itself is; `find` finds languages.

    Raises:
      TranslationsError: the folder holds no translations, or some are missing or malformed.
    """
    faults: list[str] = []
    splits = [_read_split(split, faults, find) for split in _split_folders(folder, faults)]
    if faults:
        raise TranslationsError(faults)
    return splits


def task_language(task: str, find: Find = languages.find) -> languages.Language:
    """The language of a task named `m4_<lang>_en` or `m4_<corpus>_<lang>_en`.

    A script (four letters) belongs to the code before it: `m4_sample_sr_Latn_en` is `sr_Latn`.

    Raises:
      ValueError: the name has another form, or the language is not one of M4's.
    """
    parts = task.split("_")
    if len(parts) < 3 or parts[0] != "m4" or parts[-1] != "en":
        raise ValueError(f"task {task!r} is not named m4_<corpus>_<language>_en; rename the file")
    has_script = len(parts) > 3 and len(parts[-2]) == 4
    return find("_".join(parts[-3:-1] if has_script else parts[-2:-1]))


def _split_folders(folder: Path, faults: list[str]) -> list[Path]:
    """The folders to read: `folder` when it is one split, else its children that are."""
    if not folder.is_dir():
        state = "is a file" if folder.exists() else "does not exist"
        faults.append(f"{folder} {state}; give the folder that decoding wrote, "
                      "MODEL_DIR/translations")  # fmt: skip
        return []
    if _is_split(folder):
        return [folder]
    found = sorted(child for child in folder.iterdir() if child.is_dir() and _is_split(child))
    if not found:
        inside = folder / "translations"
        hint = f"did you mean {inside}?" if inside.is_dir() else "decode first (gshard-infer)"
        faults.append(f"{folder} holds no <split>/<task>.jsonl; {hint}")
    return found


def _is_split(folder: Path) -> bool:
    return (folder / MANIFEST).exists() or any(folder.glob("*.jsonl"))


def _read_split(folder: Path, faults: list[str], find: Find) -> Split:
    manifest = _read_manifest(folder, faults)
    counts = manifest.get("tasks")
    present = {path.stem for path in folder.glob("*.jsonl")}
    if counts is not None:
        faults.extend(_presence_faults(folder, set(counts), present))
        if not counts and not present:
            faults.append(f"{folder / MANIFEST} lists no tasks; decode this split again")
    tasks = [_read_task(folder, name, counts, faults, find) for name in sorted(present)]
    found = tuple(task for task in tasks if task is not None)
    faults.extend(_repeated_languages(folder, found))
    return Split(
        folder.name,
        manifest.get("decoder", {}),
        manifest.get("checkpoint_step"),
        found,
        experts=find_experts((folder, folder.parent), faults, find),
    )


def _read_manifest(folder: Path, faults: list[str]) -> dict[str, Any]:
    """The manifest's fields that are as they should be; a fault for each that is not."""
    path = folder / MANIFEST
    if not path.is_file():
        faults.append(f"{path} is missing; it is written last, so decoding was interrupted: "
                      "decode this split again")  # fmt: skip
        return {}
    try:
        manifest = json.loads(path.read_bytes())
    except ValueError as error:
        faults.append(f"{path} is not JSON ({error}); decode this split again")
        return {}
    wanted = {"tasks": dict, "split": str, "decoder": dict, "checkpoint_step": int}
    wrong = list(_field_faults(manifest, wanted))
    good = {} if not isinstance(manifest, dict) else manifest
    counts = good.get("tasks")
    if isinstance(counts, dict) and not all(_is(count, int) for count in counts.values()):
        wrong.append("'tasks' must give a whole number of lines for each task")
    if isinstance(good.get("split"), str) and good["split"] != folder.name:
        names = f"'split' is {good['split']!r}, its folder is {folder.name!r}"
        wrong.append(f"{names}; rename it back, or remove it")
    faults.extend(f"{path}: {fault}" for fault in wrong)
    return {} if wrong else good


def _presence_faults(folder: Path, listed: set[str], present: set[str]) -> Iterator[str]:
    for name in sorted(listed - present):
        yield (f"{folder / name}.jsonl is missing, {MANIFEST} lists it; decode this split again")
    for name in sorted(present - listed):
        yield (
            f"{folder / name}.jsonl is not listed in {MANIFEST}; if it is of another run, remove it"
        )


def _read_task(
    folder: Path, name: str, counts: dict[str, int] | None, faults: list[str], find: Find
) -> Task | None:
    """The task's rows, or None and a fault for each kind of thing that is wrong."""
    path = folder / f"{name}.jsonl"
    lines = path.read_bytes().split(b"\n")
    if not lines[-1]:
        lines.pop()
    rows, wrong = _read_rows(lines)
    listed = (counts or {}).get(name, len(lines))
    if len(lines) != listed:
        wrong.append(f" has {len(lines)} lines, {MANIFEST} counts {listed}; "
                     "decode this split again")  # fmt: skip
    elif not lines:
        wrong.append(" is empty; decode this split again, or remove the task from the mixture")
    language = None
    try:
        language = task_language(name, find)
    except ValueError as error:
        wrong.append(f": {error}")
    faults.extend(f"{path}{fault}" for fault in wrong)
    return None if wrong or language is None else Task(name, language, tuple(rows))


def _read_rows(lines: list[bytes]) -> tuple[list[Translation], list[str]]:
    rows: list[Translation] = []
    where: dict[str, list[int]] = {}
    first_line_of: dict[int | str, int] = {}
    for number, line in enumerate(lines, start=1):
        row, wrong = _read_row(line)
        if row is not None and first_line_of.setdefault(row.id, number) != number:
            wrong.append("id repeats that of an earlier line")
        for fault in wrong:
            where.setdefault(fault, []).append(number)
        if row is not None:
            rows.append(row)
    return rows, [folded(fault, numbers) for fault, numbers in where.items()]


def _read_row(line: bytes) -> tuple[Translation | None, list[str]]:
    try:
        fields = json.loads(line)
    except ValueError as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "not UTF-8"
        return None, [f"not valid JSON ({reason})" if line.strip() else "blank line"]
    wrong = list(_field_faults(fields, _FIELDS))
    if wrong:
        return None, wrong
    row = Translation(**{name: fields[name] for name in _FIELDS})
    if not row.reference.strip():
        wrong.append("reference is empty; scores need a reference for every line")
    if any(map(_has_lone_surrogate, (fields["source"], row.reference, row.prediction))):
        wrong.append("text holds half of a surrogate pair; write it as UTF-8")
    return row, wrong


def _field_faults(fields: object, wanted: dict[str, type]) -> Iterator[str]:
    if not isinstance(fields, dict):
        yield f"not a JSON object but {type(fields).__name__}"
        return
    for name, kind in wanted.items():
        if name not in fields:
            yield f"{name!r} is missing"
        elif not _is(fields[name], kind):
            yield f"{name!r} must be {_KINDS[kind]}, not {type(fields[name]).__name__}"


def _is(value: object, kind: type) -> bool:
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def _has_lone_surrogate(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _repeated_languages(folder: Path, tasks: tuple[Task, ...]) -> Iterator[str]:
    first: dict[str, str] = {}
    for task in tasks:
        code = task.language.code
        if first.setdefault(code, task.name) != task.name:
            yield (
                f"{folder}: {first[code]} and {task.name} are both {task.language.name} ({code}); "
                "score them from separate folders"
            )
