"""The table of all languages of a split, as HTML that sorts and filters."""

from collections.abc import Sequence
from html import escape

from gshard_m4.evaluation.scores import LanguageScores, Macro, Scores, SplitScores
from gshard_m4.report import cells
from gshard_m4.report.columns import BAND_TIP, Column, columns_of, header, tip_of, value_of

_NAME_TIP = "English name; leads to examples of its translations"


def score_table(scores: Scores, split: SplitScores) -> str:
    """Languages with most training text first where that is known, else the best first."""
    columns = columns_of(scores, split)
    bands = any(one.band for one in split.languages)
    by_size = any(one.train_rows is not None for one in split.languages)
    few = f"Fewer than {scores.min_phrases} phrases: scored all the same, averaged apart"
    groups = [("", False, split.macro), (few, True, split.macro_few)]
    bodies = "".join(
        _group(title, _ordered(split, is_few, by_size), average, columns, bands)
        for title, is_few, average in groups
        if average is not None
    )
    total = len(split.languages)
    heading = f"All {total} languages" if total > 1 else "The language"
    order = "most training text first" if by_size else "best first"
    return (
        f'<h3>{heading}<span class="aside">{order}</span></h3><div class="wide">'
        f'<table class="scores"><thead><tr>{_head(columns, bands, by_size)}</tr></thead>'
        f"{bodies}</table></div>"
    )


def _ordered(split: SplitScores, few: bool, by_size: bool) -> list[LanguageScores]:
    """The languages with few phrases, or the others; they come best first."""
    found = [one for one in split.languages if one.few_phrases == few]
    if by_size:
        found.sort(key=lambda one: (one.train_rows is None, -(one.train_rows or 0), one.code))
    return found


def _head(columns: Sequence[Column], bands: bool, by_size: bool) -> str:
    texts = [("Language", _NAME_TIP), ("Code", "code of the language"), ("Script", "ISO 15924")]
    cells_ = [header(title, tip, numeric=False, wide=title != "Language") for title, tip in texts]
    if bands:
        cells_.append(header("Band", BAND_TIP, numeric=True, wide=True))
    for column in columns:
        sorted_by = column.key == "train_rows" if by_size else column.leading
        order = "ascending" if column.ascending else "descending"
        cells_.append(
            header(column.title, column.tip, numeric=True, column=column,
                   sort=order if sorted_by else "")
        )  # fmt: skip
    return "".join(cells_)


def _group(
    title: str,
    languages: Sequence[LanguageScores],
    average: Macro,
    columns: Sequence[Column],
    bands: bool,
) -> str:
    span = f'colspan="{len(columns) + 3 + bands}"'
    heading = f'<tr class="heading"><th scope="rowgroup" {span}>{title}</th></tr>' if title else ""
    rows = "".join(_row(one, columns, bands) for one in languages)
    ends = [_average("Mean", average, columns, bands), _average("Median", average, columns, bands)]
    return f"<tbody>{heading}{rows}{''.join(ends)}</tbody>\n"


def _row(one: LanguageScores, columns: Sequence[Column], bands: bool) -> str:
    numbers = "".join(_cell(one, column) for column in columns)
    band = cells.band_cell(one.band or "") if bands else ""
    return (
        f'<tr {cells.find_words(one)}><th scope="row">{cells.link(one)}</th>'
        f"<td>{escape(one.code)}</td><td>{escape(one.script)}</td>{band}{numbers}</tr>\n"
    )


def _cell(one: LanguageScores, column: Column) -> str:
    value = value_of(one, column.key)
    text = _with_bar(value, column) if column.bar and value is not None else ""
    return cells.number(value, column.show, tip=tip_of(one, column.key), text=text)


def _with_bar(value: float, column: Column) -> str:
    """The number behind a bar, padded with figure spaces, so that the bars stand in line."""
    return cells.bar(value) + column.show(value).rjust(5).replace(" ", "\u2007")


def _average(name: str, average: Macro, columns: Sequence[Column], bands: bool) -> str:
    values = average.mean if name == "Mean" else average.median
    numbers = "".join(_average_cell(column, average, values, name) for column in columns)
    first = " first" if name == "Mean" else ""
    blank = "<td></td>" * (2 + bands)
    return (
        f'<tr class="average{first}"><th scope="row">{name} of {average.counted}</th>'
        f"{blank}{numbers}</tr>"
    )


def _average_cell(column: Column, average: Macro, values: dict[str, float], name: str) -> str:
    if column.key == "phrases" and name == "Mean":
        return f'<td class="number" title="in all">{average.phrases:,}</td>'
    value = values.get(column.key)
    if value is None:
        return "<td></td>"
    text = _with_bar(value, column) if column.bar else column.show(value)
    known = average.known[column.key]
    title = f' title="of {cells.languages(known)}"' if known < average.languages else ""
    return f'<td class="number"{title}>{text}</td>'
