"""Where a prepared directory is from: its manifest, and what tells two runs apart."""

import hashlib
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gshard_m4 import sources
from gshard_m4.prepared import LanguageEntry, Manifest, SourceEntry
from gshard_m4.preparing.plan import DEBIAN, Plan, Source
from gshard_m4.preparing.state import digest
from gshard_m4.preparing.surveying import Surveyed


def run_inputs(plan: Plan, surveyed: Surveyed) -> str:
    """What identifies all that a run reads."""
    licences = [[source.kind, source.licence] for source in plan.sources]
    return digest([surveyed.inputs, licences])


def manifest_of(
    plan: Plan,
    surveyed: Surveyed,
    entries: Mapping[str, LanguageEntry],
    settings: Mapping[str, Any],
    *,
    command: str,
    name: str,
) -> Manifest:
    """The manifest of what was prepared."""
    return Manifest(
        name=name,
        created_by=f"gshard-m4 {version('gshard-m4')}",
        command=command,
        settings={**settings, "inputs": run_inputs(plan, surveyed)},
        sources=tuple(
            entry for source in plan.sources for entry in source_entries(source, plan, surveyed)
        ),
        languages=entries,
    )


def source_entries(source: Source, plan: Plan, surveyed: Surveyed) -> list[SourceEntry]:
    """A source's part of the manifest; of Debian an entry for each package."""
    if source.kind == DEBIAN:
        from gshard_m4 import debian

        return [SourceEntry(**entry) for entry in debian.sources(source.path)]
    return [source_entry(source, plan, surveyed)]


def source_entry(source: Source, plan: Plan, surveyed: Surveyed) -> SourceEntry:
    """A source's entry; its hash is over names and contents of the files that are read."""
    layout = sources.BY_KIND.get(source.kind)
    files = [file for file in plan.files if _is_below(file.path, source.path)]
    whole = hashlib.sha256()
    for file in files:
        whole.update(f"{file.name}\t{surveyed.files[file].sha256}\n".encode())
    return SourceEntry(
        kind=source.kind,
        path=str(source.path),
        licence=source.licence or (layout.licence if layout else "unknown"),
        licence_source="--licence" if source.licence else (layout.licence_source if layout else ""),
        hash=whole.hexdigest(),
    )


def _is_below(path: Path, folder: Path) -> bool:
    return path == folder or folder in path.parents
