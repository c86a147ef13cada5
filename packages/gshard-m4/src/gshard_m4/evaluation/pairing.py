"""Hypotheses, references and sources of a test set put together, line by line.

What does not fit together is refused with the language and the lines, and so is what fits but
looks like a mix-up (`doubts`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from gshard_m4.evaluation import doubts
from gshard_m4.evaluation.experts import find_experts
from gshard_m4.evaluation.joining import joined
from gshard_m4.evaluation.records import folded
from gshard_m4.evaluation.sides import Side, Text, read_side
from gshard_m4.evaluation.translations import Find, Split, Task, Translation

_CODES_NAMED = 12


@dataclass(frozen=True)
class Choice:
    """What of a test set to score: its name, the languages (None: all), doubts, sources.

    `partial` takes languages for which there are hypotheses, however few. `identify` tells a
    text's language, to find references that are not English.
    """

    name: str
    find: Find
    languages: tuple[str, ...] | None = None
    partial: bool = False
    as_is: bool = False
    use_sources: bool = True
    identify: Callable[[str], str | None] | None = None


@dataclass
class _Pairing:
    """The sides that are put together, and what is wrong with them."""

    hypotheses: Side
    references: Side
    sources: Side | None
    choice: Choice
    faults: list[str]
    # What was said of English that several languages share, so that it is looked at once.
    said: dict[str, list[str]] = field(default_factory=dict)


def pair(
    hypotheses: Side, references: Side, sources: Side | None, choice: Choice, faults: list[str]
) -> Split:
    """The test set, each language of the hypotheses with its references and sources."""
    pairing = _Pairing(hypotheses, references, sources, choice, faults)
    codes, not_scored = _languages(hypotheses, references, choice, faults)
    if references.shared is not None:
        faults.extend(_empty(references.shared))
    found = [_pair_language(code, pairing) for code in codes]
    tasks = tuple(task for task in found if task is not None)
    experts = find_experts((hypotheses.path,), faults, choice.find)
    return Split(choice.name, {}, None, tasks, experts, tuple(not_scored))


def _languages(
    hypotheses: Side, references: Side, choice: Choice, faults: list[str]
) -> tuple[list[str], list[str]]:
    """The languages to score, and those left out on request; a fault for half a test set."""
    there = set(hypotheses.by_code)
    if not there:
        return [], []
    wanted = set(references.by_code or references.beside) or there
    if choice.languages is not None:
        chosen = set(choice.languages)
        for code in sorted(chosen - there) if not choice.partial else ():
            faults.append(f"{hypotheses.path} has no {code}, which --languages asks for")
        return sorted(chosen & there), sorted((there | wanted) - chosen)
    missing = sorted(wanted - there)
    if missing and not choice.partial:
        faults.append(
            f"{hypotheses.path} has {len(there & wanted)} of the {len(wanted)} languages of "
            f"{references.path}; without hypotheses: {_named(missing)}. Choose those to score "
            f"with --languages{_or_english(references)}"
        )
    return sorted(there), []


def _named(codes: Sequence[str]) -> str:
    more = len(codes) - _CODES_NAMED
    return ", ".join(codes[:_CODES_NAMED]) + (f" and {more} more" if more > 0 else "")


def _or_english(references: Side) -> str:
    english = references.shared
    return f", or give {english.path} alone as --references" if english is not None else ""


def _pair_language(code: str, pairing: _Pairing) -> Task | None:
    """One language's phrases, or None and a fault for everything that is wrong with them."""
    said, references = pairing.hypotheses.by_code[code], pairing.references
    wanted = references.shared or references.by_code.get(code)
    if wanted is None and not (references.by_code or references.shared):
        return None
    if wanted is None:
        pairing.faults.append(f"{code}: {references.path} has no references for {said.path}")
        return None
    wrong = [] if references.shared is wanted else list(_empty(wanted))
    came_from = _source(code, pairing, wrong)
    # What is wrong with a file has been said when it was read.
    whole = said.whole and wanted.whole and (came_from is None or came_from.whole)
    rows = list(_rows(code, said, wanted, came_from, wrong)) if whole else []
    if rows and not wrong and not pairing.choice.as_is:
        wrong.extend(_doubts(rows, said, wanted, pairing))
    pairing.faults.extend(fault for fault in wrong if fault not in pairing.faults)
    if wrong or not rows:
        return None
    return Task(said.path.name, pairing.choice.find(code), tuple(rows))


def _doubts(
    rows: Sequence[Translation], said: Text, wanted: Text, pairing: _Pairing
) -> Iterator[str]:
    shared = wanted is pairing.references.shared
    name = str(wanted.path) if shared else f"{wanted.path} {said.path}"
    if name not in pairing.said:
        sources = [None if shared else row.source for row in rows]
        references = [row.reference for row in rows]
        pairing.said[name] = list(
            doubts.about_references(references, sources, pairing.choice.identify)
        )
    found = [(said, doubt) for doubt in doubts.about_hypotheses(rows)]
    found += [(wanted, doubt) for doubt in pairing.said[name]]
    for text, doubt in found:
        yield f"{text.path} {doubt}. If that is right, say --as-is"


def _source(code: str, pairing: _Pairing, faults: list[str]) -> Text | None:
    """The language's sources: those given, or those beside the English that all share."""
    choice, beside = pairing.choice, pairing.references.beside
    if not choice.use_sources:
        return None
    if pairing.sources is not None:
        return pairing.sources.by_code.get(code)
    if code not in beside:
        return None
    language = choice.find(code)
    side = read_side(beside[code], "sources", faults, language=language, find=choice.find)
    return side.by_code[code]


def _empty(references: Text) -> Iterator[str]:
    """A fault where references have no text."""
    empty = [
        record.line for record in references.records
        if not str(record.fields.get("reference", "x")).strip()
    ]  # fmt: skip
    if empty:
        fault = "reference is empty; scores need one for every line"
        yield f"{references.path}{folded(fault, empty)}"


def _other_references(said: Text, wanted: Text, order: Sequence[int]) -> list[int]:
    """The lines of hypotheses whose own references are not those that they are scored with."""
    pairs = [(said.records[at], record) for at, record in zip(order, wanted.records, strict=True)]
    return sorted(
        own.line for own, record in pairs
        if own.fields.get("reference", record.fields["reference"]).strip()
        != record.fields["reference"].strip()
    )  # fmt: skip


def _rows(
    code: str, said: Text, wanted: Text, came_from: Text | None, faults: list[str]
) -> Iterator[Translation]:
    """The phrases in the order of the references."""
    order = joined(code, "hypotheses", said, wanted, faults)
    origin = joined(code, "sources", came_from, wanted, faults) if came_from else None
    if order is None or faults:
        return
    if other := _other_references(said, wanted, order):
        fault = f"its own reference is not that of {wanted.path}; leave out --references, or"
        faults.append(f"{code}: {said.path}{folded(f'{fault} the field', other)}")
        return
    for number, record in enumerate(wanted.records):
        own, source = said.records[order[number]].fields, record.fields.get("source")
        if origin is not None and came_from is not None:
            source = came_from.records[origin[number]].fields["source"]
        yield Translation(
            own.get("id", record.fields.get("id", number)),
            source if source is not None else own.get("source"),
            record.fields["reference"],
            own["prediction"],
            own.get("truncated"),
        )
