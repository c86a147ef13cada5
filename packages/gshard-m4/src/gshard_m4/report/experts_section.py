"""Which experts the languages of a split use: one map a layer, as HTML."""

from collections.abc import Iterator
from html import escape

from gshard_m4.evaluation.experts import Experts
from gshard_m4.evaluation.scores import SplitScores
from gshard_m4.languages import find
from gshard_m4.report.heat_map import Row, heat_map
from gshard_m4.report.sizes import sizes_of


def experts_section(split: SplitScores, experts: Experts | None, *, number: int) -> str:
    """A map of every layer, the first one open; nothing where the run recorded none."""
    if experts is None or not experts.languages:
        return ""
    maps = []
    for layer, name in enumerate(experts.layers):
        rows = expert_rows(split, experts, layer)
        picture = heat_map(rows, key=f"e{number}-{layer}", layer=name) if rows else ""
        maps.append(
            f"<details{' open' if layer == 0 else ''} class='experts'><summary><span class='name'>"
            f"{escape(name)}</span></summary><div>{picture}</div></details>\n"
        )
    order = f"Languages are in order of {sizes_of(split.languages).of.text}, the most on top."
    said = escape(" ".join([order, *_not_drawn(split, experts)]))
    drawn = "".join(maps) if any(one.code in experts.languages for one in split.languages) else ""
    return f"<h3>Which experts a language uses</h3><p class='small soft'>{said}</p>{drawn}"


def expert_rows(split: SplitScores, experts: Experts, layer: int) -> list[Row]:
    """The shares of every scored language in one layer, largest first, then of unknown size.

    As in the table of scores, where sizes are given; empty where no scored language is recorded.
    """
    sizes = sizes_of(split.languages).by_code
    found = [one for one in split.languages if one.code in experts.languages]
    found.sort(key=lambda one: (one.code not in sizes, -sizes.get(one.code, 0), one.code))
    return [Row(one.code, one.name, experts.languages[one.code][layer]) for one in found]


def _not_drawn(split: SplitScores, experts: Experts) -> Iterator[str]:
    """The languages that have scores or shares only, in words."""
    scored = {one.code: one.name for one in split.languages}
    unknown = sorted(name for code, name in scored.items() if code not in experts.languages)
    if unknown:
        yield f"Experts were not recorded for {', '.join(unknown)}."
    codes = experts.languages.keys() - scored.keys()
    others = sorted(find(code, variants=True, others=True).name for code in codes)
    if others:
        yield f"Recorded but not scored here, and so not drawn: {', '.join(others)}."
