"""The rows of one language: cleaning's reasons, duplicates, held-out sentences in training.

Memory is two 64-bit keys a row, of at most KEYS_AT_ONCE rows at a time: a language that has more is
read several times, each time for another part of the keys.
"""

import array
import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from gshard_m4 import scripts
from gshard_m4.corpus import Pair
from gshard_m4.doctor.checks import LEAST_SCRIPT_SHARE, Finding
from gshard_m4.doctor.files import HELD_OUT, UNDETERMINED
from gshard_m4.doctor.keys import Held, exact, held
from gshard_m4.input_error import InputError
from gshard_m4.prepared import Manifest, Prepared
from gshard_m4.preparing.cleaning import Cleaning, fault, repaired
from gshard_m4.preparing.keys import keys, keys_as_cleaned
from gshard_m4.preparing.processes import count_rows

KEYS_AT_ONCE = 8_000_000
_TICK = 4_096
# Rows between those whose letters are counted.
_SCRIPT_EVERY = 16
_EXAMPLE_CHARACTERS = 60


@dataclasses.dataclass(frozen=True)
class LanguageTask:
    """One language to look at, with all that a process needs.

    Attributes:
        path: the directory.
        manifest: with this language alone.
        code: of it.
        cleaning: what is allowed in a pair.
        held: its own held-out sentences.
        everywhere: keys of the held-out English of all languages, sorted.
    """

    path: Path
    manifest: Manifest
    code: str
    cleaning: Cleaning
    held: Held
    everywhere: np.ndarray


def check_rows(task: LanguageTask) -> list[Finding]:
    """What is wrong with the rows of a language."""
    prepared = Prepared(task.path, task.manifest)
    findings = []
    for split in prepared.manifest.languages[task.code].splits:
        found = _Split(task, split, prepared)
        try:
            findings += found.findings()
        except ValueError as error:
            detail = (
                error.faults[0] if isinstance(error, InputError) else f"a row is no row: {error}"
            )
            findings.append(Finding(check="file", language=task.code, split=split, detail=detail))
    return [*findings, *_in_both(task.code, prepared)]


def script_of(prepared: Prepared, code: str, split: str) -> str:
    """The script a language should be in; where nobody says, the one of its first rows."""
    script = prepared.manifest.languages[code].script
    if script != UNDETERMINED:
        return script
    pairs = prepared.pairs(code, split)
    texts = (pairs[row][0] for row in range(min(len(pairs), 100)))
    return scripts.main_script(" ".join(texts)) or "Latn"


class _Split:
    """One split of a language, read in order."""

    def __init__(self, task: LanguageTask, split: str, prepared: Prepared):
        self._task, self._split = task, split
        self._pairs = prepared.pairs(task.code, split)
        self._script = script_of(prepared, task.code, split)
        self._parts = max(1, -(-len(self._pairs) // KEYS_AT_ONCE))
        self._rows: dict[str, list[int]] = {}  # Check -> number of rows, exact ones, the first.
        self._everywhere = frozenset(task.everywhere.tolist())
        self._letters = [0.0, 0]  # In the script, of rows with letters.
        self._keys, self._hashes = array.array("Q"), array.array("Q")

    def findings(self) -> Iterator[Finding]:
        """Reads all rows and gives what was found."""
        for number, (source, english) in enumerate(_counted(self._pairs)):
            plain = self._clean(number, source, english)
            self._compare(number, source, english, keys(*plain))
        yield from self._row_findings()
        yield from self._script_finding()
        yield from self._duplicates()

    def _clean(self, number: int, source: str, english: str) -> Pair:
        """Notes what cleaning would do, and gives the pair as it would be."""
        repairs: set[str] = set()
        plain = repaired(source, repairs), repaired(english, repairs)
        for repair in repairs:
            self._add(repair, number)
        if reason := fault(*plain, self._script, self._task.cleaning):
            self._add(reason, number)
        if number % _SCRIPT_EVERY == 0 and (total := sum(scripts.script_counts(source).values())):
            self._letters[0] += scripts.share_in(source, self._script) * total
            self._letters[1] += total
        return plain

    def _compare(self, number: int, source: str, english: str, keyed: tuple[int, int, int]) -> None:
        pair, source_key, english_key = keyed
        if pair % self._parts == 0:
            self._keys.append(pair)
            self._hashes.append(exact(f"{source}\t{english}"))
        if self._split != "train":
            return
        own = self._task.held
        if source_key in own.sources:
            self._add("held out source", number, exact(source) in own.exact_sources)
        if english_key in own.english:
            self._add("held out English", number, exact(english) in own.exact_english)
        elif english_key in self._everywhere:
            self._add("held out English elsewhere", number)

    def _add(self, check: str, number: int, is_exact: bool = False) -> None:
        counts = self._rows.setdefault(check, [0, 0, number])
        counts[0] += 1
        counts[1] += is_exact

    def _row_findings(self) -> Iterator[Finding]:
        for check, (rows, exactly, first) in self._rows.items():
            compared = check in ("held out source", "held out English")
            yield self._finding(check, rows, first, exactly if compared else None)

    def _script_finding(self) -> Iterator[Finding]:
        inside, letters = self._letters
        if letters and inside / letters < LEAST_SCRIPT_SHARE:
            detail = f"{inside / letters:.0%} of the letters are {self._script}"
            yield dataclasses.replace(self._finding("script share", 0, None), detail=detail)

    def _duplicates(self) -> Iterator[Finding]:
        same = alike = 0
        first: list[int | None] = [None, None]
        for part in range(self._parts):
            if part:
                self._collect(part)
            hashes, pairs = (np.frombuffer(a, np.uint64) for a in (self._hashes, self._keys))
            repeated, near = _repeated(hashes), _repeated(pairs)
            near = np.setdiff1d(near, repeated, assume_unique=True)
            same, alike = same + len(repeated), alike + len(near)
            if self._parts == 1:
                first = [int(x.min()) if len(x) else None for x in (repeated, near)]
        for check, rows, number in zip(
            ("duplicate", "near duplicate"), (same, alike), first, strict=True
        ):
            if rows:
                yield self._finding(check, rows, number)

    def _collect(self, part: int) -> None:
        """The keys of another part of the rows."""
        self._keys, self._hashes = array.array("Q"), array.array("Q")
        for source, english in self._pairs:
            pair, _, _ = keys_as_cleaned(source, english)
            if pair % self._parts == part:
                self._keys.append(pair)
                self._hashes.append(exact(f"{source}\t{english}"))

    def _finding(
        self, check: str, rows: int, number: int | None, exactly: int | None = None
    ) -> Finding:
        return Finding(
            check=check,
            language=self._task.code,
            split=self._split,
            rows=rows,
            of=len(self._pairs),
            exact=exactly,
            example="" if number is None else _shown(number, self._pairs[number]),
        )


def _in_both(code: str, prepared: Prepared) -> list[Finding]:
    """Validation sentences that are in the test set too, by either side."""
    try:
        test = held(prepared.pairs(code, HELD_OUT[1]))
        pairs = list(prepared.pairs(code, HELD_OUT[0]))
    except InputError:
        return []  # Found already.
    both, exactly = [], 0
    for number, (source, english) in enumerate(pairs):
        _, source_key, english_key = keys_as_cleaned(source, english)
        if source_key in test.sources or english_key in test.english:
            both.append(number)
            exactly += exact(source) in test.exact_sources or exact(english) in test.exact_english
    if not both:
        return []
    return [
        Finding(
            check="in validation and test",
            language=code,
            split="validation",
            rows=len(both),
            of=len(pairs),
            exact=exactly,
            example=_shown(both[0], pairs[both[0]]),
        )
    ]


def _counted(pairs: Iterable[Pair]) -> Iterator[Pair]:
    """The pairs, as they are told to the progress bar."""
    number = 0
    for number, pair in enumerate(pairs, start=1):
        yield pair
        if number % _TICK == 0:
            count_rows(_TICK)
    count_rows(number % _TICK)


def _repeated(keys_: np.ndarray) -> np.ndarray:
    """The places of keys that stand at an earlier place too."""
    order = np.argsort(keys_, kind="stable")
    again = keys_[order][1:] == keys_[order][:-1]
    return order[1:][again]


def _shown(number: int, pair: Pair) -> str:
    sides = (text[:_EXAMPLE_CHARACTERS] + "…" * (len(text) > _EXAMPLE_CHARACTERS) for text in pair)
    return f"row {number + 1:,}: " + " = ".join(map(repr, sides))
