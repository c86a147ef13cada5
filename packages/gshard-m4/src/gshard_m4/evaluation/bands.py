"""Resource bands: which languages had much training data, and which little."""

from collections.abc import Mapping


def bands_of(sizes: Mapping[str, int], bounds: tuple[int, int] | None = None) -> dict[str, str]:
    """The resource band of every language by its training size.

    By rank in the paper's proportions, 25 high, 52 mid and 25 low of 102, unless bounds are given:
    low is then below the first, high at least the second.
    """
    if bounds is not None:
        low, high = bounds
        return {
            code: "high" if size >= high else "low" if size < low else "mid"
            for code, size in sizes.items()
        }
    ordered = sorted(sizes, key=lambda code: (-sizes[code], code))
    edge = round(len(ordered) * 25 / 102)
    middle = ["mid"] * (len(ordered) - 2 * edge)
    return dict(zip(ordered, ["high"] * edge + middle + ["low"] * edge, strict=True))
