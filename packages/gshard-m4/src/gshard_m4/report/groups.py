"""Averages of groups of languages: resource bands and scripts."""

from collections.abc import Sequence
from html import escape

from gshard_m4.evaluation.scores import LanguageScores, Macro, Scores, SplitScores, macro
from gshard_m4.report import cells

_MOST_METRICS = 3
_MOST_CODES = 4
_MOST_SCRIPTS = 8  # where there are more, those of a single language share a row


def group_tables(scores: Scores, split: SplitScores) -> str:
    """Small tables by band and by script; a table of one group would say nothing."""
    tables = [_band_table(scores, split), _script_table(scores, split)]
    found = "".join(table for table in tables if table)
    return f'<div class="groups">{found}</div>' if found else ""


def band_bounds(smallest: int | None, largest: int | None) -> str:
    """Training sizes at the ends of a band, in words."""
    if smallest is None or largest is None:
        return cells.NOTHING
    return f"{smallest:,}" if smallest == largest else f"{smallest:,} to {largest:,}"


def _band_table(scores: Scores, split: SplitScores) -> str:
    if not split.bands:
        return ""
    rows = [
        (band.name, band_bounds(band.smallest, band.largest), band.macro) for band in split.bands
    ]
    source = f"Bands by {scores.bands_from}." if scores.bands_from else ""
    about = "Training pairs" if any(band.smallest is not None for band in split.bands) else ""
    return _table("By resource band", ("Band", about), rows, scores, source)


def _script_table(scores: Scores, split: SplitScores) -> str:
    scripts = sorted({one.script for one in split.quoted})
    if len(scripts) < 2:
        return ""
    inside = {name: [one for one in split.quoted if one.script == name] for name in scripts}
    if len(scripts) > _MOST_SCRIPTS:
        single = [name for name in scripts if len(inside[name]) == 1]
        rest = [one for name in single for one in inside.pop(name)]
        inside |= {f"{len(single)} others": rest} if rest else {}
    found = [(name, _codes(group), macro(group)) for name, group in inside.items()]
    rows = [(name, codes, average) for name, codes, average in found if average is not None]
    rows.sort(key=lambda row: ("other" in row[0], -row[2].languages, row[0]))
    return _table("By script", ("Script", "Languages"), rows, scores, "")


def _codes(languages: Sequence[LanguageScores]) -> str:
    codes = sorted(one.code for one in languages)
    return ", ".join(codes[:_MOST_CODES]) + (", …" if len(codes) > _MOST_CODES else "")


def _table(
    title: str,
    heads: tuple[str, str],
    rows: Sequence[tuple[str, str, Macro]],
    scores: Scores,
    note: str,
) -> str:
    """One row a group; the second column is left out where it has no head."""
    keys = _keys(scores, rows)
    numbers = "".join(f'<th scope="col" class="number">{escape(name)}</th>' for _, name in keys)
    body = "".join(
        f'<tr><th scope="row">{escape(name)}</th>{_about(about) if heads[1] else ""}'
        f'<td class="number">{average.languages}</td>{_values(scores, average, keys)}</tr>'
        for name, about, average in rows
    )
    second = f'<th scope="col">{heads[1]}</th>' if heads[1] else ""
    below = f'<p class="small soft">{escape(note)}</p>' if note else ""
    return (
        f'<div><h3>{title}<span class="aside">means over languages</span></h3>'
        f'<div class="wide"><table class="small-table"><thead><tr><th scope="col">{heads[0]}</th>'
        f'{second}<th scope="col" class="number">n</th>{numbers}</tr>'
        f"</thead><tbody>{body}</tbody></table></div>{below}</div>"
    )


def _about(text: str) -> str:
    return f'<td class="plain">{escape(text)}</td>'


def _values(scores: Scores, average: Macro, keys: Sequence[tuple[str, str]]) -> str:
    return "".join(
        f'<td class="number">'
        f"{cells.shown(average.mean.get(key), cells.metric_show(scores, key))}</td>"
        for key, _ in keys
    )


def _keys(scores: Scores, rows: Sequence[tuple[str, str, Macro]]) -> list[tuple[str, str]]:
    """Metrics and differences that some group has, with their titles."""
    pairs = [
        pair
        for metric in cells.leading_first(scores)[:_MOST_METRICS]
        for pair in ((metric.key, metric.title), (f"delta_{metric.key}", f"Δ {metric.title}"))
    ]
    return [(key, title) for key, title in pairs if any(key in row[2].mean for row in rows)]
