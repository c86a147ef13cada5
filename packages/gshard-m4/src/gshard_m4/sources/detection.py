"""Which layout a folder has, by the names of its files."""

from pathlib import Path

from gshard_m4.input_error import InputError
from gshard_m4.languages import is_english
from gshard_m4.sources.files import File, files_below
from gshard_m4.sources.layouts import LAYOUTS, Layout
from gshard_m4.sources.scanning import matches


def detect(root: Path) -> str:
    """The kind of the layout that a folder (or file) has.

    Raises:
        InputError: no layout fits, or several do; the message lists what each would take.
    """
    if not root.exists():
        raise InputError([f"--input={root} does not exist"])
    files, packed = files_below(root)
    fitting = [(layout, _usable(files, layout)) for layout in LAYOUTS]
    fitting = [(layout, count) for layout, count in fitting if count]
    chosen = [pair for pair in fitting if not pair[0].general] or fitting
    if len(chosen) == 1:
        return chosen[0][0].kind
    if chosen:
        counts = ", ".join(f"{layout.kind} ({count} files)" for layout, count in chosen)
        raise InputError([f"{root} fits several layouts: {counts}; choose one with --source"])
    if packed and not files:
        raise InputError(packed)
    there = ", ".join(file.name for file in files[:4]) or "no file"
    raise InputError(
        [*packed, f"{root} fits no layout; it has {there}. Known layouts:", *kinds_table()]
    )


def kinds_table() -> list[str]:
    """A line for each layout: its kind and what it is."""
    kinds = [(layout.kind, layout.what) for layout in LAYOUTS if not layout.monolingual]
    kinds.append(("debian", "translations in packages of the Debian archive, which it downloads"))
    return [f"  {kind:18} {what}" for kind, what in kinds]


def _usable(files: list[File], layout: Layout) -> int:
    """Files of the layout; of one-sided files only those whose text has an English side."""
    found = [match for match in matches(files, layout) if match[1].detects]
    if layout.kind != "moses":
        return len(found)
    with_english = {
        _folder_and_stem(file, match) for file, _, match in found if is_english(match["side"])
    }
    usable = [f for f, _, m in found if _folder_and_stem(f, m) in with_english]
    return len(usable) if len(usable) > len(with_english) else 0


def _folder_and_stem(file: File, match) -> tuple[str, str]:
    start, end = match.span("side")
    return file.name[:start], file.name[end:]
