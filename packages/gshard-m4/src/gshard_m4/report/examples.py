"""Translations to read as HTML: source, reference and translation, each in its own direction.

Most are taken evenly through a task's file, never chosen by how good they are; the worst and those
in another language come under headings that say so.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from gshard_m4.evaluation.defects import is_copied, is_exact
from gshard_m4.evaluation.scores import LanguageScores, Scores, SplitScores
from gshard_m4.evaluation.translations import Split, Task, Translation
from gshard_m4.languages import Language, find
from gshard_m4.report import cells

EXAMPLES_PER_LANGUAGE = 8
_WORST_PER_LANGUAGE = 3
_EXAMPLES_ACROSS = 12
_RIGHT_TO_LEFT = frozenset({"Adlm", "Arab", "Hebr", "Nkoo", "Rohg", "Syrc", "Thaa"})


@dataclass(frozen=True)
class _Example:
    """One phrase; `remark` is said beside the translation, `who` in the first column."""

    row: Translation
    language: Language
    remark: str = ""
    who: str = ""


def examples_section(scores: Scores, splits: Sequence[Split]) -> str:
    """Translations across the languages of the first split, then of every language, folded."""
    first, tasks = scores.splits[0], {task.language.code: task for task in splits[0].tasks}
    across = [
        _across_ranking(first, tasks),
        _lowest(first, tasks),
        _not_english(first, tasks),
    ]
    return "\n".join(
        [
            '<section id="translations"><h2>Translations</h2>',
            *across,
            _by_language(scores, splits),
            "</section>",
        ]
    )


def spread(items: Sequence, count: int) -> list:
    """`count` of the items, evenly through the sequence, its ends included; all if fewer."""
    if len(items) <= count:
        return list(items)
    return [items[round(i * (len(items) - 1) / (count - 1))] for i in range(count)]


def direction(language: Language) -> str:
    """`rtl` or `ltr`: which way the language is written."""
    return "rtl" if language.script in _RIGHT_TO_LEFT else "ltr"


def _across_ranking(scores: SplitScores, tasks: dict[str, Task]) -> str:
    """One phrase of each of a dozen languages, from the best score to the worst."""
    chosen = [tasks[one.code] for one in spread(scores.ranked, _EXAMPLES_ACROSS)]
    examples = [
        _Example(task.rows[len(task.rows) // 2], task.language, who=task.language.name)
        for task in chosen
    ]
    return _block(
        "From the best language to the worst",
        scores.title,
        f"The middle phrase of {len(chosen)} languages, evenly along the ranking.",
        examples,
    )


def _lowest(scores: SplitScores, tasks: dict[str, Task]) -> str:
    """The worst phrase of each of the dozen languages where it is worst."""
    found = []
    for one in scores.languages:
        rows = tasks[one.code].rows
        said = [each for each in one.worst if rows[each.row].prediction.strip()]
        found += [(each.chrfpp, one.code, one.name, rows[each.row]) for each in said[:1]]
    examples = [
        _Example(row, tasks[code].language, f"chrF++ {value:.1f}", name)
        for value, code, name, row in sorted(found, key=lambda each: each[:2])[:_EXAMPLES_ACROSS]
    ]
    note = (
        "The worst phrase of a language, empty translations aside; one each of the languages "
        "where it is lowest."
    )
    return _block("Lowest chrF++ of a phrase", scores.title, note, examples)


def _not_english(scores: SplitScores, tasks: dict[str, Task]) -> str:
    """One translation in another language of each language that has most of them."""
    found = sorted(
        (one for one in scores.languages if one.other_languages),
        key=lambda one: (-(one.wrong_language or 0.0), one.code),
    )
    examples = [
        _Example(
            tasks[one.code].rows[one.other_languages[0].row],
            tasks[one.code].language,
            f"taken for {_language_name(one.other_languages[0].language)}",
            one.name,
        )
        for one in found[:_EXAMPLES_ACROSS]
    ]
    note = "The first such translation of the languages that have most of them."
    return _block("Not in English", scores.title, note, examples)


def _language_name(code: str) -> str:
    """The language's name if it is one of M4's, else what the identifier calls it."""
    try:
        return find(code).name
    except ValueError:
        return code


def _block(title: str, aside: str, note: str, examples: Sequence[_Example]) -> str:
    """A heading with its examples, as many languages as examples; nothing where there are none."""
    if not examples:
        return ""
    return (
        f'<h3>{title} <span class="aside">{escape(aside)}</span></h3>'
        f'<p class="small soft">{note}</p>{_table(examples)}'
    )


def _by_language(scores: Scores, splits: Sequence[Split]) -> str:
    """Examples of every language, folded, in order of the languages' names."""
    tasks: dict[str, list[tuple[SplitScores, Task]]] = {}
    for split_scores, split in zip(scores.splits, splits, strict=True):
        for task in split.tasks:
            tasks.setdefault(task.language.code, []).append((split_scores, task))
    folded = sorted(tasks.values(), key=lambda found: found[0][1].language.name)
    leading = scores.leading
    metric = escape(leading.title) if leading else "exact"
    summary = _summary(leading.key if leading else "")
    return (
        f'<h3>By language <span class="aside">{metric}</span></h3>'
        f'<p class="small soft">{EXAMPLES_PER_LANGUAGE} phrases of each set, taken evenly through '
        "it, not chosen by how good they are; then its worst.</p>"
        f"{''.join(_language(found, summary) for found in folded)}"
    )


def _summary(key: str) -> Callable[[LanguageScores], str]:
    """What is said of a language while its examples are folded."""

    def said(one: LanguageScores) -> str:
        if not key:
            return f"{cells.percent(one.exact)} %"
        return cells.shown(one.value(key), cells.score)

    return said


def _language(
    found: list[tuple[SplitScores, Task]], summary: Callable[[LanguageScores], str]
) -> str:
    language = found[0][1].language
    numbers, tables, own = [], [], None
    for scores, task in found:
        own = next(one for one in scores.languages if one.code == language.code)
        title = escape(scores.title)
        numbers.append(f"<span>{title} {summary(own)}</span>")
        chosen = [_Example(row, language) for row in spread(task.rows, EXAMPLES_PER_LANGUAGE)]
        tables.append(f"<h4>{title}</h4>{_table(chosen)}{_worst(own, task)}")
    assert own is not None
    return (
        f'<details {cells.find_words(own)}><summary><span class="name">{escape(language.name)} '
        f'<span class="soft">{escape(language.code)}</span></span>'
        f'<span class="summary-scores">{"".join(numbers)}</span></summary>'
        f'<div id="{cells.anchor(language.code)}">{"".join(tables)}</div></details>\n'
    )


def _worst(own: LanguageScores, task: Task) -> str:
    """The phrases with the lowest chrF++, where all of them are not shown anyway."""
    if not own.worst or len(task.rows) <= EXAMPLES_PER_LANGUAGE:
        return ""
    examples = [
        _Example(task.rows[each.row], task.language, f"chrF++ {each.chrfpp:.1f}")
        for each in own.worst[:_WORST_PER_LANGUAGE]
    ]
    return f"<h4>Lowest chrF++</h4>{_table(examples)}"


def _table(examples: Sequence[_Example]) -> str:
    who = any(example.who for example in examples)
    sources = any(example.row.source is not None for example in examples)
    heads = [("who", "Language")] if who else []
    heads += [("", "Source")] if sources else []
    heads += [("", "Reference"), ("", "Translation")]
    titles = "".join(
        f'<th scope="col"{f" class={name!r}" if name else ""}>{title}</th>' for name, title in heads
    )
    rows = "".join(_row(example, who, sources) for example in examples)
    return f'<table class="phrases"><thead><tr>{titles}</tr></thead><tbody>{rows}</tbody></table>'


def _row(example: _Example, who: bool, sources: bool) -> str:
    row, language = example.row, example.language
    code = escape(language.code)
    first = (
        f'<td data-label="Language" class="who"><a href="#{cells.anchor(language.code)}">'
        f"{escape(example.who)}</a></td>"
    )
    source = (
        f'<td data-label="Source" lang="{code}" dir="{direction(language)}">'
        f"{escape(row.source or '')}</td>"
    )
    # The translation may be in any language: its own letters say which way it runs.
    said = escape(row.prediction) if row.prediction.strip() else '<span class="soft">(empty)</span>'
    return (
        f'<tr class="{"exact" if is_exact(row) else "other"}">{first if who else ""}'
        f'{source if sources else ""}<td data-label="Reference" lang="en">{escape(row.reference)}'
        f'</td><td data-label="Translation" lang="en" class="prediction"><span dir="auto">{said}'
        f"</span>{_marks(example)}</td></tr>\n"
    )


def _marks(example: _Example) -> str:
    row = example.row
    words = [
        ("✓ exact", is_exact(row)),
        ("copied", is_copied(row)),
        ("cut off", bool(row.truncated)),
        (example.remark, bool(example.remark)),
    ]
    return "".join(f'<span class="mark">{escape(word)}</span>' for word, holds in words if holds)
