"""The page of several systems side by side, which needs nothing beside itself.

The systems were evaluated on the same references with the same signatures; who makes the page has
checked that.
"""

from collections.abc import Sequence
from html import escape

from gshard_m4.evaluation.comparison import left_out
from gshard_m4.evaluation.scores import BANDS, Metric, Scores
from gshard_m4.report import cells
from gshard_m4.report.compared import Compared, band_of, compared
from gshard_m4.report.comparison_table import comparison_table, tested
from gshard_m4.report.document import codes, document, facts, finder, head, packages
from gshard_m4.report.scatter_picture import scatter_picture
from gshard_m4.report.significance import differences, too_few_samples
from gshard_m4.report.trend_picture import trend_picture

_CHANGES_NAMED = 10


def comparison_page(systems: Sequence[Scores], *, command: str = "") -> str:
    """The text of the page.

    Args:
      systems: at least two; differences are to the first.
      command: the command line to show as the way to make the page again.

    Raises:
      ValueError: no split is in all of the systems, or none of its languages.
    """
    splits = [split for split in compared(systems) if split.rows]
    if not splits:
        raise ValueError("the systems have no language of a test set in common")
    names = splits[0].systems
    count = len({row[0].code for split in splits for row in split.rows})
    title = f"{len(names)} systems, {cells.languages(count)} into English"
    links = [(f"#set-{split.name}", split.title) for split in splits]
    above = f"GShard M4 comparison · {', '.join(names)}"
    sections = [_section(split, systems, number) for number, split in enumerate(splits)]
    sets = left_out(systems)
    note = f"Sets left out, as not all systems have them: {sets}." if sets else ""
    header = head(title, above, [*links, ("#made", "How it was made")], note)
    body = [header, finder(count), *sections]
    return document(title, [*body, facts(_how_made(systems, splits, command))])


def _section(split: Compared, systems: Sequence[Scores], number: int) -> str:
    return "\n".join(
        [
            f'<section id="set-{escape(split.name)}"><h2>{escape(split.title)}</h2>',
            f"<p>{escape(split.shows)}</p>" if split.shows else "",
            _summary(split, systems),
            _significance(split, systems),
            _missing(split),
            _few(split, systems),
            *(_pictures(split, metric, number) for metric in _drawn(split)),
            *(_changes(split, systems, system) for system in range(1, len(split.systems))),
            comparison_table(split, systems),
            "</section>",
        ]
    )


def _drawn(split: Compared) -> list[Metric]:
    """The metrics with pictures: the leading one and BLEU."""
    return [each for each in split.metrics if each == split.metrics[0] or each.key == "bleu"]


def _summary(split: Compared, systems: Sequence[Scores]) -> str:
    """Means of every system over the languages that all have, and by band."""
    groups = [("", "all")] + [(band, band) for band in BANDS if _size(split, band)]
    heads = "".join(
        f'<th scope="col" class="number">{escape(metric.title)} {title}</th>'
        for metric in split.metrics
        for _, title in groups
    )
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th>{_means(split, systems, system, groups)}</tr>'
        for system, name in enumerate(split.systems)
    )
    counts = [f"{title} {_size(split, band)}" for band, title in groups]
    return (
        '<h3>Means<span class="aside">over the languages that all systems have: '
        f'{", ".join(counts)}</span></h3><div class="wide"><table class="small-table"><thead><tr>'
        f'<th scope="col">System</th>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _size(split: Compared, band: str) -> int:
    return sum(not band or band_of(row) == band for row in split.quoted)


def _means(
    split: Compared, systems: Sequence[Scores], system: int, groups: Sequence[tuple[str, str]]
) -> str:
    return "".join(
        '<td class="number">'
        + cells.shown(
            split.mean(metric.key, system, band=band), cells.metric_show(systems[0], metric.key)
        )
        + "</td>"
        for metric in split.metrics
        for band, _ in groups
    )


def _significance(split: Compared, systems: Sequence[Scores]) -> str:
    """How many languages every system is significantly better and worse in than the first."""
    found = []
    for system in range(1, len(systems)):
        if tested(systems[0], systems[system]):
            text = differences([row[system] for row in split.quoted], split.metrics)
            name, first = escape(split.systems[system]), escape(split.systems[0])
            found.append(f"<p>{name} against {first}: {text}.</p>" if text else "")
            note = too_few_samples(systems[system])
            found.append(f'<p class="note small">{note}</p>' if note else "")
    return "".join(dict.fromkeys(found))


def _missing(split: Compared) -> str:
    said = [
        f"{name} has no {', '.join(missing)}"
        for name, missing in zip(split.systems, split.missing, strict=True)
        if missing
    ]
    if not said:
        return ""
    return f'<p class="note small">Left out of everything below: {escape("; ".join(said))}.</p>'


def _few(split: Compared, systems: Sequence[Scores]) -> str:
    """Which languages the means leave out for their few phrases."""
    if not split.few:
        return ""
    least = max(scores.min_phrases for scores in systems)
    names = escape(", ".join(row[0].name for row in split.few))
    return (
        f'<p class="note small">Fewer than {least} phrases, and so in the table only, not in '
        f"means, counts and pictures: {names}.</p>"
    )


def _pictures(split: Compared, metric: Metric, number: int) -> str:
    """Scores and differences by training size; the unsmoothed ones and the scatter are folded."""
    key, series = f"c{number}-{metric.key}", split.series(metric.key)
    scores = trend_picture(series, key=f"{key}-t", measure=metric.title)
    if not scores:
        return ""
    text = series[0].size_of.text
    gains, against = split.differences(metric.key), split.systems[0]
    name, first = escape(metric.title), escape(against)
    of = f" of {escape(split.systems[1])}" if len(gains) == 1 else ""
    folded = [
        (
            "Differences without smoothing",
            trend_picture(
                gains, key=f"{key}-r", measure=metric.title, against=against, smooth=False
            ),
        ),
        (
            f"{metric.title} against {text}",
            scatter_picture(series, key=f"{key}-s", measure=metric.title),
        ),
    ]
    details = "".join(
        f"<details><summary><span class='name'>{escape(title)}</span></summary><div>{picture}</div>"
        "</details>"
        for title, picture in folded
    )
    return (
        f"<h3>{name}, from most {text} to least</h3>{scores}"
        f"<h3>Δ {name}{of} against {first}</h3>"
        f"{trend_picture(gains, key=f'{key}-d', measure=metric.title, against=against)}{details}"
    )


def _changes(split: Compared, systems: Sequence[Scores], system: int) -> str:
    """Where a system gains and loses most against the first."""
    if not split.metrics:
        return ""
    metric = split.metrics[0]
    show = cells.metric_show(systems[0], f"delta_{metric.key}")
    sign = 1 if metric.higher_is_better else -1
    found = [(split.difference(row, metric.key, system), row[0]) for row in split.quoted]
    known = [(value, one) for value, one in found if value is not None]
    known.sort(key=lambda pair: (-sign * pair[0], pair[1].code))
    better = [pair for pair in known if sign * pair[0] > 0][:_CHANGES_NAMED]
    worse = [pair for pair in reversed(known) if sign * pair[0] < 0][:_CHANGES_NAMED]
    name, first = escape(split.systems[system]), escape(split.systems[0])
    lists = "".join(
        f'<div><h3>{name}: {title}<span class="aside">Δ {escape(metric.title)} against {first}'
        "</span></h3><ol>"
        + "".join(
            f'<li><span>{escape(one.name)}</span><span></span><span class="number">{show(value)}'
            "</span></li>"
            for value, one in pairs
        )
        + "</ol></div>"
        for title, pairs in (("gains most", better), ("loses most", worse))
        if pairs
    )
    return f'<div class="extremes">{lists}</div>' if lists else ""


def _how_made(
    systems: Sequence[Scores], splits: Sequence[Compared], command: str
) -> list[tuple[str, str]]:
    found = [
        ("Command", codes([command]) if command else "not recorded"),
        *((f"{one.title} signature", codes([one.signature])) for one in splits[0].metrics),
        (
            "Averages",
            "over languages that all systems have, each counting once; never over pooled phrases. "
            "Languages with too few phrases are left out of them, as in each evaluation.",
        ),
    ]
    for name, scores in zip(splits[0].systems, systems, strict=True):
        steps = [f"{s.title}: step {s.checkpoint_step}" for s in scores.splits if s.checkpoint_step]
        lines = [scores.command, packages(scores.versions), *steps]
        found.append((name, codes([line for line in lines if line])))
    return found
