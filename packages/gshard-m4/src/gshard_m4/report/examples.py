"""Translations to read as HTML: source, reference and translation, each in its own direction.

Examples are taken evenly through a task's file, never chosen by how good they are.
"""

from collections.abc import Sequence
from html import escape

from gshard_m4.evaluation.evaluate import is_copied, is_exact
from gshard_m4.evaluation.scores import Scores, SplitScores
from gshard_m4.evaluation.translations import Split, Task, Translation
from gshard_m4.languages import Language
from gshard_m4.report.sections import anchor, find_words, percent

EXAMPLES_PER_LANGUAGE = 8
_EXAMPLES_ACROSS = 12
_RIGHT_TO_LEFT = frozenset({"Adlm", "Arab", "Hebr", "Nkoo", "Rohg", "Syrc", "Thaa"})


def across_ranking(scores: SplitScores, split: Split) -> str:
    """One phrase of each of a dozen languages, from the best score to the worst."""
    tasks = {task.language.code: task for task in split.tasks}
    chosen = [tasks[one.code] for one in spread(scores.ranked, _EXAMPLES_ACROSS)]
    rows = "".join(
        _row(task.rows[len(task.rows) // 2], task.language, who=task.language.name)
        for task in chosen
    )
    return (
        f'<h3>From the best language to the worst <span class="aside">{escape(scores.title)}'
        f"</span></h3><p class='small soft'>The middle phrase of {len(chosen)} languages, evenly "
        f"along the ranking.</p>{_table(rows, who=True)}"
    )


def by_language(scores: Scores, splits: Sequence[Split]) -> str:
    """Examples of every language, folded, in order of the languages' names."""
    tasks: dict[str, list[tuple[SplitScores, Task]]] = {}
    for split_scores, split in zip(scores.splits, splits, strict=True):
        for task in split.tasks:
            tasks.setdefault(task.language.code, []).append((split_scores, task))
    folded = sorted(tasks.values(), key=lambda found: found[0][1].language.name)
    return (
        '<h3>By language <span class="aside">chrF++ · exact</span></h3>'
        f"<p class='small soft'>{EXAMPLES_PER_LANGUAGE} phrases of each set, "
        "taken evenly through it, not chosen by how good they are.</p>"
        f"{''.join(map(_language, folded))}"
    )


def spread(items: Sequence, count: int) -> list:
    """`count` of the items, evenly through the sequence, its ends included; all if fewer."""
    if len(items) <= count:
        return list(items)
    return [items[round(i * (len(items) - 1) / (count - 1))] for i in range(count)]


def direction(language: Language) -> str:
    """`rtl` or `ltr`: which way the language is written."""
    return "rtl" if language.script in _RIGHT_TO_LEFT else "ltr"


def _language(found: list[tuple[SplitScores, Task]]) -> str:
    language = found[0][1].language
    numbers = []
    tables = []
    for scores, task in found:
        own = next(one for one in scores.languages if one.code == language.code)
        title = escape(scores.title)
        numbers.append(f"{title} {own.chrfpp:.1f} · {percent(own.exact)} %")
        rows = "".join(_row(row, language) for row in spread(task.rows, EXAMPLES_PER_LANGUAGE))
        tables.append(f"<h4>{title}</h4>{_table(rows)}")
    words = find_words(language.name, language.code, language.script)
    listed = "".join(f"<span>{number}</span>" for number in numbers)
    return (
        f'<details {words}><summary><span class="name">{escape(language.name)} '
        f'<span class="soft">{escape(language.code)}</span></span>'
        f'<span class="summary-scores">{listed}</span></summary>'
        f'<div id="{anchor(language.code)}">{"".join(tables)}</div></details>\n'
    )


def _table(rows: str, *, who: bool = False) -> str:
    first = '<th scope="col" class="who">Language</th>' if who else ""
    return (
        f'<table class="phrases"><thead><tr>{first}<th scope="col">Source</th><th scope="col">'
        f'Reference</th><th scope="col">Translation</th></tr></thead><tbody>{rows}</tbody></table>'
    )


def _row(row: Translation, language: Language, *, who: str = "") -> str:
    kind = "exact" if is_exact(row) else "other"
    first = (
        f'<td data-label="Language" class="who"><a href="#{anchor(language.code)}">'
        f"{escape(who)}</a></td>"
    )
    said = escape(row.prediction) if row.prediction.strip() else '<span class="soft">(empty)</span>'
    return (
        f'<tr class="{kind}">{first if who else ""}'
        f'<td data-label="Source" lang="{escape(language.code)}" dir="{direction(language)}">'
        f'{escape(row.source)}</td><td data-label="Reference" lang="en">{escape(row.reference)}'
        f'</td><td data-label="Translation" lang="en" class="prediction">{said}{_mark(row)}</td>'
        "</tr>\n"
    )


def _mark(row: Translation) -> str:
    words = [("✓ exact", is_exact(row)), ("copied", is_copied(row)), ("cut off", row.truncated)]
    return "".join(f'<span class="mark">{word}</span>' for word, holds in words if holds)
