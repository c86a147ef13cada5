"""Bytes, seconds and counts as people read them: three digits and a unit."""

from gshard_annotate.inspector.report import Source

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_DECIMAL = ("", "k", "M", "G", "T", "P", "E")
_TIMES = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))


def size(count: float) -> str:
    """A number of bytes, as `1.5 GiB`."""
    value, unit = _scaled(count, 1024, _BINARY)
    return f"{digits(value)} {unit}"


def number(count: float, unit: str = "") -> str:
    """A number of something, as `1.25 TFLOP`; the unit's prefix is decimal."""
    value, prefix = _scaled(count, 1000, _DECIMAL)
    return f"{digits(value)} {prefix}{unit}".rstrip()


def duration(seconds: float | None) -> str:
    """A time, as `1.25 ms`; a dash when it is not known."""
    if seconds is None:
        return "–"
    unit, factor = next((one for one in _TIMES if seconds >= one[1]), _TIMES[-1])
    return f"{digits(seconds / factor)} {unit}"


def percent(share: float | None) -> str:
    """A share, as `12 %`; a dash when it is not known."""
    if share is None:
        return "–"
    return "<1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"


def plural(count: int, what: str) -> str:
    """A count with its noun, as `1 value` and `2 values`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def digits(value: float) -> str:
    """The first three digits, without zeros behind the point."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def place(source: Source | None, folders: int = 0) -> str:
    """A line of the program, as `layers.py:88`, with so many of the folders around the file."""
    if source is None:
        return ""
    parts = source.file.replace("\\", "/").split("/")
    return f"{'/'.join(parts[-1 - folders :])}:{source.line}"


def _scaled(count: float, step: int, units: tuple[str, ...]) -> tuple[float, str]:
    value = float(count)
    for unit in units[:-1]:
        if value < 1000:
            return value, unit
        value /= step
    return value, units[-1]
