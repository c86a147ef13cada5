"""The scores of one split as HTML: the headline, a chart, the extremes and the table."""

from collections.abc import Mapping, Sequence
from html import escape

from gshard_m4.evaluation.scores import (
    SHORT_FOR_BLEU,
    LanguageScores,
    Macro,
    SplitScores,
    best_and_worst,
)

# Title of a column, the metric behind it (none: text) and what the title's tooltip says.
_COLUMNS = (
    ("Language", "", "English name; leads to examples of its translations"),
    ("Code", "", "code of the language"),
    ("Script", "", "ISO 15924 code of the script"),
    ("Phrases", "phrases", "held-out phrases"),
    ("chrF++", "chrfpp", "0 to 100, higher is better"),
    ("Exact %", "exact", "translations that are the reference, character for character"),
    ("BLEU", "bleu", "0 to 100; – where no translation has four tokens"),
    ("Empty %", "empty", "translations without any text"),
    ("Copied %", "copied", "translations that are the source, although the reference is not"),
    ("Cut %", "truncated", "translations cut off at the longest length decoded"),
)


def split_section(split: SplitScores, min_phrases: int) -> str:
    """Everything about the split but examples."""
    return "\n".join(
        [
            f'<section id="set-{escape(split.name)}"><h2>{escape(split.title)}</h2>',
            f"<p>{escape(split.shows)}</p>" if split.shows else "",
            _figures(split.headline),
            _bleu_note(split.headline.mean["short"]),
            _few_note(split, min_phrases),
            _chart(split, min_phrases),
            _extremes(split),
            _table(split, min_phrases),
            "</section>",
        ]
    )


def anchor(code: str) -> str:
    """The id of a language's examples on the page."""
    return f"language-{escape(code)}"


def find_words(name: str, code: str, script: str) -> str:
    """The attributes by which the page's filter finds a language."""
    return f'data-code="{escape(code)}" data-find="{escape(f"{name} {code} {script}")}"'


def percent(share: float) -> str:
    """A share between 0 and 1 as a percentage with one decimal, without the sign."""
    return f"{100 * share:.1f}"


def _figures(macro: Macro) -> str:
    mean, median = macro.mean, macro.median
    exact = f'{percent(mean["exact"])}<span class="unit"> %</span>'
    figures = [
        ("chrF++, mean over languages", f"{mean['chrfpp']:.1f}", f"median {median['chrfpp']:.1f}"),
        ("Exactly right, mean over languages", exact, f"median {percent(median['exact'])} %"),
        ("BLEU, mean over languages", f"{mean['bleu']:.1f}", f"median {median['bleu']:.1f}"),
        ("Languages in these means", f"{macro.languages}", f"{macro.phrases:,} phrases"),
    ]
    cells = "".join(
        f'<div class="figure{" minor" if position > 1 else ""}"><dt>{name}</dt>'
        f'<dd class="value">{value}</dd><dd class="small soft">{note}</dd></div>'
        for position, (name, value, note) in enumerate(figures)
    )
    return f'<dl class="figures">{cells}</dl>'


def _bleu_note(short: float) -> str:
    if short < SHORT_FOR_BLEU:
        return ""
    return (
        f'<p class="small soft">Go by chrF++ and by the share that is exactly right, not by BLEU: '
        f"{percent(short)} % of the references are shorter than the four tokens that it compares. "
        "For a single language it comes out near 0, or undefined where no translation has four "
        "tokens (sacrebleu counts that as 0, the table shows –).</p>"
    )


def _few_note(split: SplitScores, min_phrases: int) -> str:
    few = split.macro_few
    if few is None:
        return ""
    if split.macro is None:
        text = f"Every language here has fewer than {min_phrases} phrases: numbers are rough."
    else:
        numbers = f"chrF++ {few.mean['chrfpp']:.1f}, exactly right {percent(few.mean['exact'])} %"
        text = (
            f"{few.counted} with fewer than {min_phrases} phrases, averaged apart from the others: "
            f"{numbers}."
        )
    return f'<p class="note small">{text}</p>'


def _chart(split: SplitScores, min_phrases: int) -> str:
    """One column a language, best first; for the eye only, as the table says the same."""
    ordered = sorted(split.languages, key=lambda one: (-one.chrfpp, one.code))
    columns = "".join(
        f'<a class="{"few" if one.few_phrases else "enough"}" href="#{anchor(one.code)}" '
        f'tabindex="-1" style="--v:{one.chrfpp:.2f}" '
        f'title="{escape(one.name)} ({escape(one.code)}): {one.chrfpp:.1f}"></a>'
        for one in ordered
    )
    both = split.macro is not None and split.macro_few is not None
    key = f'<span class="key">fewer than {min_phrases} phrases</span>' if both else ""
    ends = [f"<span>{escape(one.name)} {one.chrfpp:.1f}</span>" for one in ordered]
    mean = split.headline.mean["chrfpp"]
    axis = f'{ends[0]}<span class="mean">mean {mean:.1f}</span>{key}{"".join(ends[1:][-1:])}'
    return (
        '<h3>chrF++ of every language, 0 to 100</h3><div class="chart" aria-hidden="true">'
        f'<div class="columns" style="--mean:{mean:.2f}">{columns}</div>'
        f'<p class="axis">{axis}</p></div>'
    )


def _extremes(split: SplitScores) -> str:
    best, worst = best_and_worst(split)
    lists = _ranking("Highest chrF++", best) + (_ranking("Lowest chrF++", worst) if worst else "")
    return f'<div class="extremes">{lists}</div>'


def _ranking(title: str, languages: Sequence[LanguageScores]) -> str:
    items = "".join(
        f'<li><a href="#{anchor(one.code)}">{escape(one.name)}</a>{_bar(one.chrfpp)}'
        f'<span class="number">{one.chrfpp:.1f}</span>'
        f'<span class="number soft">{percent(one.exact)} %</span></li>'
        for one in languages
    )
    aside = '<span class="aside">chrF++ · exact</span>'
    return f"<div><h3>{title}{aside}</h3><ol>{items}</ol></div>"


def _bar(value: float) -> str:
    return f'<span class="bar" style="--v:{value:.2f}"></span>'


def _table(split: SplitScores, min_phrases: int) -> str:
    number, order = ' class="number" data-numeric', ' aria-sort="descending"'
    head = "".join(
        f'<th scope="col" title="{escape(tip)}"{number if metric else ""}'
        f"{order if metric == 'chrfpp' else ''}>{title}</th>"
        for title, metric, tip in _COLUMNS
    )
    few = f"Fewer than {min_phrases} phrases: scored all the same, averaged apart"
    enough = [one for one in split.languages if not one.few_phrases]
    others = [one for one in split.languages if one.few_phrases]
    bodies = _group("", enough, split.macro) + _group(few, others, split.macro_few)
    return (
        f'<h3>All {len(split.languages)} languages</h3><div class="wide"><table class="scores">'
        f"<thead><tr>{head}</tr></thead>{bodies}</table></div>"
    )


def _group(title: str, languages: Sequence[LanguageScores], macro: Macro | None) -> str:
    if macro is None:
        return ""
    span = f'colspan="{len(_COLUMNS)}"'
    heading = f'<tr class="heading"><th scope="rowgroup" {span}>{title}</th></tr>' if title else ""
    averages = _average("Mean", macro, macro.mean) + _average("Median", macro, macro.median)
    return f"<tbody>{heading}{''.join(map(_language_row, languages))}{averages}</tbody>\n"


def _language_row(one: LanguageScores) -> str:
    values = {metric: getattr(one, metric) for _, metric, _ in _COLUMNS if metric}
    cells = "".join(
        f'<td class="number" data-v="{value!r}">{_cell(metric, value, one)}</td>'
        for metric, value in values.items()
    )
    return (
        f'<tr {find_words(one.name, one.code, one.script)}><th scope="row">'
        f'<a href="#{anchor(one.code)}">{escape(one.name)}</a></th>'
        f"<td>{escape(one.code)}</td><td>{escape(one.script)}</td>{cells}</tr>\n"
    )


def _cell(metric: str, value: float, one: LanguageScores | None = None) -> str:
    if metric == "phrases":
        return str(value)
    if metric == "bleu":
        return f"{value:.1f}" if one is None or one.bleu_four_grams else "–"
    if metric == "chrfpp":
        # Padded with figure spaces, so that the bars stand in line.
        return _bar(value) + f"{value:4.1f}".replace(" ", "\u2007")
    return percent(value)


def _average(name: str, macro: Macro, values: Mapping[str, float]) -> str:
    cells = "".join(
        f'<td class="number">{_cell(metric, values[metric])}</td>'
        for _, metric, _ in _COLUMNS
        if metric in values
    )
    first = name == "Mean"
    phrases = f"{macro.phrases:,}" if first else ""
    return (
        f'<tr class="average{" first" if first else ""}"><th scope="row">{name} of '
        f'{macro.counted}</th><td></td><td></td><td class="number">{phrases}</td>'
        f"{cells}</tr>"
    )
