"""How often each language is seen: sizes to rates, by temperature, cap and floor."""

from collections.abc import Mapping

TEMPERATURE = 5.0


def temperature_rates(
    counts: Mapping[str, int],
    *,
    temperature: float = TEMPERATURE,
    maximum: int | None = None,
    minimum_share: float = 0.0,
) -> dict[str, float]:
    """Shares p ~ (n / sum n)^(1 / T), which sum to 1.

    T = 1 follows the sizes, a large T makes all equal; M4 uses T = 5 (arXiv 1907.05019, 3.2).

    Args:
        counts: n of each.
        temperature: T.
        maximum: larger n count as this, before the temperature acts, as `maximum` of seqio's
            `mixing_rate_num_examples` does.
        minimum_share: whatever would be below gets this share, the others what is left, in their
            proportions.

    Raises:
        ValueError: naming everything that is out of its bounds.
    """
    if faults := _faults(counts, temperature, maximum, minimum_share):
        raise ValueError("temperature_rates: " + "; ".join(faults))
    total = sum(counts.values())
    powers = {
        name: (n if maximum is None else min(n, maximum)) / total for name, n in counts.items()
    }
    powers = {name: power ** (1 / temperature) for name, power in powers.items()}
    return _raised({name: power / sum(powers.values()) for name, power in powers.items()},
                   minimum_share)  # fmt: skip


def _raised(rates: dict[str, float], minimum: float) -> dict[str, float]:
    """The rates with those below the minimum at it, and the others scaled to what is left."""
    low: set[str] = set()
    while below := {name for name, rate in rates.items() if rate < minimum} - low:
        low |= below
        left = 1 - minimum * len(low)
        rest = sum(rate for name, rate in rates.items() if name not in low)
        rates = {
            name: minimum if name in low else rate * left / rest for name, rate in rates.items()
        }
    return rates


def _faults(
    counts: Mapping[str, int], temperature: float, maximum: int | None, minimum_share: float
) -> list[str]:
    faults = []
    bad = {name: n for name, n in counts.items() if n <= 0}
    if bad or not counts:
        faults.append(f"every count must be positive, got {bad or 'none'}")
    if not temperature > 0:
        faults.append(f"temperature must be positive, got {temperature}")
    if maximum is not None and maximum < 1:
        faults.append(f"maximum must be at least 1, got {maximum}")
    if counts and not 0 <= minimum_share <= 1 / len(counts):
        faults.append(
            f"minimum_share must be from 0 to {1 / len(counts):.6g} for {len(counts)} languages,"
            f" got {minimum_share}"
        )
    return faults
