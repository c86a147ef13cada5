"""The coverage of vocabularies as lines of text."""

from collections.abc import Iterable, Sequence

from gshard_m4.vocabulary.coverage import Coverage, by_script, flags

_HEADINGS = (
    *("", "language", "script", "rows", "unknown", "bytes"),
    *("tokens/word", "tokens/character", "tokens/English", "not covered"),
)


def table(english: Coverage, languages: Sequence[Coverage]) -> list[str]:
    """A line for English, each language and each script, then what is bad and what to do."""
    scripts = by_script(languages)
    groups = [[_HEADINGS], _cells([english]), _cells(languages), _cells(scripts)]
    lines = _aligned([row for group in groups for row in [*group, ()]])
    bad = [(one, reason) for one in (english, *languages) for reason in flags(one)]
    if not bad:
        return [*lines, f"nothing to flag in {_counted(len(languages), 'language')} and English"]
    lines.append(f"flagged ({len({one.code for one, _ in bad})} of {len(languages) + 1}):")
    return [*lines, *(f"  {one.code} ({one.name}): {reason}" for one, reason in bad)]


def _cells(coverages: Iterable[Coverage]) -> list[tuple[str, ...]]:
    return [
        (
            one.code,
            one.name,
            one.script,
            f"{one.rows:,}",
            f"{one.unknown_rate:.2%}",
            f"{one.byte_rate:.2%}",
            "-" if one.tokens_per_word is None else f"{one.tokens_per_word:.2f}",
            f"{one.tokens_per_character:.2f}",
            f"{one.per_english:.2f}",
            _counted(len(one.lost), "character") if one.lost else "",
        )
        for one in coverages
    ]


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns as wide as their widest cell, numbers to the right."""
    columns = len(_HEADINGS)
    widths = [max(len(row[i]) for row in rows if row) for i in range(columns)]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if i > 2 else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=False))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines
