"""Large counts as people say them."""

_SCALES = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"))


def short(count: float) -> str:
    """A count as `601B`: three digits and a letter."""
    for scale, letter in _SCALES:
        if count >= scale:
            return f"{count / scale:.3g}{letter}"
    return f"{count:.3g}"
