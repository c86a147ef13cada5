"""The table of all languages of several systems, as HTML that sorts and filters."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from gshard_m4.evaluation.scores import Metric, Scores
from gshard_m4.report import cells
from gshard_m4.report.columns import BAND_TIP, Column, header, value_of
from gshard_m4.report.compared import Compared, Row, band_of, rows_of


@dataclass(frozen=True)
class _Values:
    """A column with where its numbers come from: a row's, and the mean over all rows."""

    column: Column
    of: Callable[[Row], float | None]
    mean: float | None = None


def comparison_table(split: Compared, systems: Sequence[Scores]) -> str:
    """Languages with most training text first where that is known, else in order of codes."""
    columns = _columns(split, systems)
    columns = [
        each
        for each in columns
        if each.mean is not None or any(each.of(row) is not None for row in split.rows)
    ]
    bands = any(band_of(row) for row in split.rows)
    by_size = any(rows_of(row) is not None for row in split.rows)
    rows = "".join(_row(row, columns, bands) for row in split.rows)
    aside = "most training text first" if by_size else "in order of codes"
    return (
        f'<h3>{cells.languages(len(split.rows))} of all systems<span class="aside">{aside}</span>'
        f'</h3><div class="wide"><table class="scores"><thead><tr>{_head(columns, bands, by_size)}'
        f"</tr></thead><tbody>{rows}{_mean(split, columns, bands)}</tbody></table></div>"
    )


def _columns(split: Compared, systems: Sequence[Scores]) -> list[_Values]:
    found = [
        _Values(Column("Training pairs", "train_rows", "in training", cells.count), rows_of),
        _Values(
            Column("Phrases", "phrases", "held-out phrases", cells.count),
            lambda row: row[0].phrases,
        ),
    ]
    for number, metric in enumerate(split.metrics):
        found += _of_metric(split, systems, metric, first=number == 0)
    for system, name in enumerate(split.systems):
        column = Column(
            f"{name} not English %", "wrong_language", "share of translations", cells.percent,
            first=False,
        )  # fmt: skip
        found.append(_of_system(split, column, "wrong_language", system))
    return found


def _of_metric(
    split: Compared, systems: Sequence[Scores], metric: Metric, *, first: bool
) -> list[_Values]:
    """Every system's score; then each other system's difference to the first, and its test."""
    key, lower = metric.key, not metric.higher_is_better
    show = cells.metric_show(systems[0], key)
    difference = cells.metric_show(systems[0], f"delta_{key}")
    found = []
    for system, name in enumerate(split.systems):
        column = Column(
            f"{metric.title} {name}", key, metric.signature, show, first, ascending=lower
        )
        found.append(_of_system(split, column, key, system))
    for system, name in list(enumerate(split.systems))[1:]:
        tip = f"{metric.title} of {name} minus that of {split.systems[0]}"
        column = Column(f"Δ {metric.title} {name}", key, tip, difference, ascending=lower)
        means = split.mean(key, system), split.mean(key, 0)
        mean = means[0] - means[1] if means[0] is not None and means[1] is not None else None
        found.append(_Values(column, _difference(split, key, system), mean))
        if tested(systems[0], systems[system]):
            tip = "paired test against the first system, corrected for languages (Holm)"
            column = Column(
                f"p {metric.title} {name}", key, tip, cells.probability, first, ascending=True
            )
            found.append(_Values(column, _value(f"p_{key}", system)))
    return found


def tested(first: Scores, other: Scores) -> bool:
    """Whether the other system's scores hold a test against the first."""
    against = other.baseline
    return other.significance is not None and against is not None and against.name == first.name


def _of_system(split: Compared, column: Column, key: str, system: int) -> _Values:
    return _Values(column, _value(key, system), split.mean(key, system))


def _value(key: str, system: int) -> Callable[[Row], float | None]:
    return lambda row: value_of(row[system], key)


def _difference(split: Compared, key: str, system: int) -> Callable[[Row], float | None]:
    return lambda row: split.difference(row, key, system)


def _head(columns: Sequence[_Values], bands: bool, by_size: bool) -> str:
    texts = [
        ("Language", "English name"),
        ("Code", "code of the language"),
        ("Script", "ISO 15924"),
    ]
    heads = [
        header(
            title,
            tip,
            numeric=False,
            sort="" if by_size or title != "Code" else "ascending",
            wide=title != "Language",
        )
        for title, tip in texts
    ]
    if bands:
        heads.append(header("Band", BAND_TIP, numeric=True, wide=True))
    for each in columns:
        sort = "descending" if each.column.key == "train_rows" and by_size else ""
        heads.append(
            header(each.column.title, each.column.tip, numeric=True, column=each.column, sort=sort)
        )
    return "".join(heads)


def _row(row: Row, columns: Sequence[_Values], bands: bool) -> str:
    one = row[0]
    band = cells.band_cell(band_of(row)) if bands else ""
    numbers = "".join(cells.number(each.of(row), each.column.show) for each in columns)
    return (
        f'<tr {cells.find_words(one, band_of(row))}><th scope="row">{escape(one.name)}</th>'
        f"<td>{escape(one.code)}</td><td>{escape(one.script)}</td>{band}{numbers}</tr>\n"
    )


def _mean(split: Compared, columns: Sequence[_Values], bands: bool) -> str:
    numbers = "".join(
        "<td></td>" if each.mean is None
        else f'<td class="number">{each.column.show(each.mean)}</td>'
        for each in columns
    )  # fmt: skip
    of = cells.languages(len(split.quoted))
    return (
        f'<tr class="average first"><th scope="row">Mean of {of}</th>'
        f"{'<td></td>' * (2 + bands)}{numbers}</tr>"
    )
