"""Packages' pairs joined by language, and the record of where they are from."""

import gzip
import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Collection as Codes
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gshard_m4.debian.apt import Package
from gshard_m4.debian.extraction import Job
from gshard_m4.debian.packages import COLLECTIONS, DESCRIPTIONS

RECORD = "debian.json"


def merge(
    jobs: Sequence[Job],
    packages: Mapping[str, Package],
    work: Path,
    *,
    codes: Codes[str] | None,
    missing: Sequence[str],
    broken: Mapping[str, str],
) -> Path:
    """Writes the languages' files, packages in order of name; returns their folder.

    Every language there is, where `codes` is None. A folder of the same packages is left alone.
    """
    beside, folder = work / "pairs.partial", work / "pairs"
    reports = {job.name: json.loads(job.report.read_text("utf-8")) for job in jobs}
    made_of = _digest(reports, codes, missing, broken)
    if _is_there(folder, made_of):
        return folder
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    ordered = sorted(jobs, key=lambda job: job.name)
    rows: Counter[str] = Counter()
    for job in ordered:
        for code, (_, _, count) in reports[job.name]["members"].items():
            rows[code] += count
    wanted = sorted(rows if codes is None else codes)
    for code in sorted(rows.keys() & set(wanted)):
        with (beside / f"{code}.tsv").open("wb") as file:
            for job in ordered:
                if code in reports[job.name]["members"]:
                    file.write(_member(job, reports[job.name]["members"][code]))
    record = {
        "made_of": made_of,
        "sources": [_source(job, reports[job.name], packages) for job in ordered],
        "languages": {code: rows[code] for code in wanted},
        "other_languages": {c: n for c, n in rows.most_common() if c not in wanted},
        "read": sum(report["read"] for report in reports.values()),
        "kept": rows.total(),
        "removed": _sum(report["removed"] for report in reports.values()),
        "unknown_locales": _sum(report["unknown_locales"] for report in reports.values()),
        "unreadable": [line for report in reports.values() for line in report["unreadable"]],
        "missing_packages": sorted(missing),
        "broken_packages": dict(broken),
    }
    text = json.dumps(record, ensure_ascii=False, indent=1) + "\n"
    (beside / RECORD).write_text(text, "utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    beside.replace(folder)
    return folder


def sources(folder: Path) -> list[dict[str, str]]:
    """The packages that gave rows, with the fields that a manifest has for each source."""
    record = json.loads((folder / RECORD).read_text("utf-8"))
    return [
        {key: value for key, value in source.items() if key != "rows"}
        for source in record["sources"]
        if source["rows"]
    ]


def _digest(*values: Any) -> str:
    text = json.dumps(values, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _is_there(folder: Path, made_of: str) -> bool:
    """Whether the folder is whole and was made of the same packages for the same languages."""
    try:
        record = json.loads((folder / RECORD).read_text("utf-8"))
    except (OSError, ValueError):
        return False
    rows = record["languages"]
    return record["made_of"] == made_of and all(
        (folder / f"{code}.tsv").is_file() for code, count in rows.items() if count
    )


def _member(job: Job, place: Sequence[int]) -> bytes:
    at, size, _ = place
    with job.output.open("rb") as file:
        file.seek(at)
        return gzip.decompress(file.read(size))


def _source(job: Job, report: Mapping[str, Any], packages: Mapping[str, Package]) -> dict[str, Any]:
    """A package as a source of a prepared directory's manifest."""
    collection = next(c for c in (*COLLECTIONS, DESCRIPTIONS) if c.name == job.collection)
    package = packages.get(job.name)
    named = ", ".join(report["licence"])
    file = f"/usr/share/doc/{job.name}/copyright in the package"
    if collection is DESCRIPTIONS:
        licence_source = "Debian Policy 2.2.1"
    elif named:
        licence_source = file
    elif report["has_copyright"]:
        licence_source = f"{file}, in words"
    else:
        licence_source = "debian/copyright of the source package"
    return {
        "kind": f"debian/{collection.name}",
        "path": f"{job.name} {package.version}" if package else job.name,
        "licence": named or collection.licence,
        "licence_source": licence_source,
        "hash": f"sha256:{package.sha256}" if package else f"inputs:{job.fingerprint}",
        "rows": report["kept"],
    }


def _sum(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)
    return dict(total.most_common())
