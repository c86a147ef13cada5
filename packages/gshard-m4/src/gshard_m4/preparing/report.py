"""What was prepared, as a table to read and as JSON."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gshard_m4.prepared import LanguageEntry, Manifest
from gshard_m4.preparing.clean_language import Cleaned
from gshard_m4.preparing.cleaning import REASONS

REPORT = "prepare_report.json"
_MORE = ("repaired", "drawn", "held")  # of `Cleaned`
_MOST_SETS, _MOST_ORIGINS = 5, 4
_FEW_ROWS = 100
_LEAST_KEPT = 0.1
_SPLITS = ("train", "validation", "test")
_SHORT = {
    "control characters": "control",
    "wrong script": "script",
    "length ratio": "ratio",
    "too long": "long",
    "no letters": "letters",
    "near duplicate": "near dup",
    "duplicate": "dup",
    "held out source": "held src",
    "held out English": "held en",
    "held out English elsewhere": "held else",
}


def to_json(manifest: Manifest, cleaned: Mapping[str, Cleaned], left_out: Sequence[str]) -> str:
    """The report: counts by language, reasons with what they mean, and what was left out."""
    languages = {
        code: _language(entry, cleaned.get(code)) for code, entry in manifest.languages.items()
    }
    report = {
        "schema_version": 1,
        "created_by": manifest.created_by,
        "command": manifest.command,
        "reasons": REASONS,
        "languages": languages,
        "left_out": list(left_out),
    }
    return json.dumps(report, ensure_ascii=False, indent=1) + "\n"


def _language(entry: LanguageEntry, cleaned: Cleaned | None) -> dict[str, Any]:
    rows = {split: entry.splits[split].rows if split in entry.splits else 0 for split in _SPLITS}
    more = {name: getattr(cleaned, name) for name in _MORE} if cleaned else {}
    return {
        "name": entry.name,
        "script": entry.script,
        "read": entry.read,
        "kept": entry.kept,
        **rows,
        "removed": dict(entry.removed),
        **more,
    }


def table(manifest: Manifest) -> list[str]:
    """A line for each language and one for all: rows read, kept, removed by reason, splits."""
    used = Counter[str]()
    for entry in manifest.languages.values():
        used.update(entry.removed)
    reasons = [reason for reason in REASONS if used[reason]]
    head = ["language", "read", "kept", *(_SHORT.get(r, r) for r in reasons), *_SPLITS]
    body = [
        _cells(f"{entry.name} ({code})", [entry], reasons)
        for code, entry in manifest.languages.items()
    ]
    entries = list(manifest.languages.values())
    body.append(_cells(f"{len(entries)} language{'s' * (len(entries) != 1)}", entries, reasons))
    return _aligned([head, *body])


def _cells(name: str, entries: Sequence[LanguageEntry], reasons: Sequence[str]) -> list[str]:
    numbers = [
        sum(entry.read for entry in entries),
        sum(entry.kept for entry in entries),
        *(sum(entry.removed.get(reason, 0) for entry in entries) for reason in reasons),
        *(
            sum(entry.splits[split].rows for entry in entries if split in entry.splits)
            for split in _SPLITS
        ),
    ]
    return [name, *(f"{number:,}" if number else "-" for number in numbers)]


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def faults(manifest: Manifest) -> list[str]:
    """Languages of which no row is left: input or settings are wrong, whatever others are like."""
    return [
        f"{code}: {_why_nothing(entry)}. Mend the input or the settings, or leave the language out"
        " with --languages"
        for code, entry in manifest.languages.items()
        if not entry.kept
    ]


def _why_nothing(entry: LanguageEntry) -> str:
    if not entry.read:
        return "its files have no row"
    why = _reasons(entry)
    other = {"Hans": "zh_Hant", "Hant": "zh"}.get(entry.script, "")
    hint = f"; the other Chinese script is {other}" if other and "wrong script" in why else ""
    return f"none of its {entry.read:,} rows is kept ({why}{hint})"


def _reasons(entry: LanguageEntry) -> str:
    """Why rows were removed, the most frequent reason first."""
    ranked = sorted(entry.removed.items(), key=lambda item: -item[1])
    return ", ".join(f"{reason} {count:,}" for reason, count in ranked)


def warnings(manifest: Manifest) -> list[str]:
    """Languages that lost nearly all rows; a line for each split that languages lack."""
    lost = [
        f"WARNING {code}: {entry.kept:,} of {entry.read:,} rows are kept ({_reasons(entry)})"
        for code, entry in manifest.languages.items()
        if entry.read >= _FEW_ROWS and entry.kept < _LEAST_KEPT * entry.read
    ]
    without: dict[str, list[str]] = {split: [] for split in _SPLITS}
    for code, entry in manifest.languages.items():
        for split in _SPLITS:
            if split not in entry.splits or not entry.splits[split].rows:
                without[split].append(code)
    total = len(manifest.languages)
    return lost + [
        f"no {split} text: {'all languages' if len(codes) == total else ', '.join(codes)}"
        for split, codes in without.items()
        if codes
    ]


def sets(cleaned: Mapping[str, Cleaned]) -> list[str]:
    """A line for each held-out set of the input that is made of several, or repeats itself."""
    found = [
        (code, split, counts)
        for code, one in cleaned.items()
        for split, counts in one.held.items()
        if len(counts["origins"]) > 1 or counts["repeated"]
    ]
    found.sort(key=lambda one: -one[2]["repeated"])
    told = [f"{code} {split}: {_made_of(counts)}" for code, split, counts in found[:_MOST_SETS]]
    more = len(found) - len(told)
    return told + ([f"{more} more sets of several origins, in {REPORT}"] if more else [])


def _made_of(counts: Mapping[str, Any]) -> str:
    ranked = sorted(counts["origins"].items(), key=lambda item: -item[1])
    named = [f"{origin or 'unnamed'} {rows:,}" for origin, rows in ranked[:_MOST_ORIGINS]]
    more = len(ranked) - len(named)
    origins = ", ".join([*named, *([f"{more} more origins"] if more else [])])
    again = counts["repeated"]
    rows = f"row{'s' * (again != 1)}"
    return f"{origins}; {again:,} {rows} repeated, kept as published" if again else origins


def plan_table(rows: Mapping[str, int], parts: Mapping[str, Sequence[Any]]) -> list[str]:
    """What a run would read: for each language files, rows (about) and the splits they are of."""
    head = ["language", "files", "rows", "splits"]
    body = [
        [
            code,
            str(len({file for part in parts[code] for file in part.files})),
            f"{rows[code]:,}",
            ", ".join(s for s in _SPLITS if any(part.split == s for part in parts[code])),
        ]
        for code in parts
    ]
    total = [f"{len(parts)} languages", "", f"{sum(rows.values()):,}", ""]
    return _aligned([head, *body, total])
