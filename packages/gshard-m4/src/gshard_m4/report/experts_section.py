"""Which experts the languages of a split use: one map a layer, as HTML."""

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
        picture = heat_map(expert_rows(split, experts, layer), key=f"e{number}-{layer}", layer=name)
        maps.append(
            f"<details{' open' if layer == 0 else ''} class='experts'><summary><span class='name'>"
            f"{escape(name)}</span></summary><div>{picture}</div></details>\n"
        )
    order = f"Languages are in order of {sizes_of(split.languages).of.text}, the most on top."
    return f"<h3>Which experts a language uses</h3><p class='small soft'>{order}</p>{''.join(maps)}"


def expert_rows(split: SplitScores, experts: Experts, layer: int) -> list[Row]:
    """The shares of every recorded language in one layer, largest first, then of unknown size."""
    sizes = sizes_of(split.languages).by_code
    order = sorted(experts.languages, key=lambda code: (-sizes.get(code, 0), code))
    return [
        Row(code, find(code, variants=True, others=True).name, experts.languages[code][layer])
        for code in order
    ]
