"""Which rows a vocabulary is learnt from and measured on: by index, the same in every run."""

import collections
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gshard_m4.corpus import Pair
from gshard_m4.mixture import temperature_rates
from gshard_m4.vocabulary.model import normalize

CHARACTER_ROWS = 20_000
"""Rows of a language, and as many of English, whose characters are counted."""

# One row by its index takes as long as reading this many in order.
_ROWS_IN_ORDER = 6


def quotas(counts: Mapping[str, int], total: int, temperature: float) -> dict[str, int]:
    """How many rows of each language make a sample of about `total`, none taken twice.

    Languages share the total at the rates p ~ (n / sum n)^(1 / temperature). One that has fewer
    rows than its share gives all of them, and what is left is shared among the others at the same
    rates. Languages without rows are left out.
    """
    counts = {language: count for language, count in counts.items() if count}
    taken: dict[str, int] = {}
    while open_ := {code: n for code, n in counts.items() if code not in taken}:
        left = total - sum(taken.values())
        rates = temperature_rates(open_, temperature=temperature)
        full = {code: n for code, n in open_.items() if n <= rates[code] * left}
        if not full:
            taken |= {code: max(1, round(rates[code] * left)) for code in open_}
        taken |= full
    return {code: taken[code] for code in counts}


def spread(rows: int, take: int, *, between: bool = False) -> list[int]:
    """`take` indices below `rows`, ascending and evenly spaced.

    Those `between` lie in the middle of the others' gaps, and none is in both where 2 * take <=
    rows.
    """
    take = min(take, rows)
    return [(2 * i + between) * rows // (2 * take) for i in range(take)]


def pick(pairs: Sequence[Pair], indices: Sequence[int]) -> Iterator[Pair]:
    """The pairs at ascending indices, read in the cheaper way."""
    if len(indices) * _ROWS_IN_ORDER < len(pairs):
        yield from (pairs[index] for index in indices)
        return
    wanted = iter(indices)
    index = next(wanted, None)
    for row, pair in enumerate(pairs):
        if row == index:
            yield pair
            index = next(wanted, None)


def frequent_characters(texts: Iterable[str], share: float) -> set[str]:
    """The fewest characters that make up a share of a text, spaces aside."""
    counts = collections.Counter[str]()
    for text in texts:
        counts.update(normalize(text))
    counts.pop(" ", None)
    total, seen, chosen = counts.total(), 0, set[str]()
    for character, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if seen >= share * total:
            break
        chosen.add(character)
        seen += count
    return chosen
