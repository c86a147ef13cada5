"""Places for labels beside points, so that none lies on another or on a point."""

from collections.abc import Sequence

Box = tuple[float, float, float, float]  # left, top, right, bottom


def place_labels(
    points: Sequence[tuple[float, float]],
    words: Sequence[str],
    *,
    letter: float,
    height: float,
    gap: float,
    area: Box,
) -> list[tuple[int, float, float]]:
    """The labels that fit as (index, left, baseline); earlier points choose first.

    A label stands right of its point, left, above or below, inside `area`; where none of the four
    is free, the point goes without.
    """
    taken: list[Box] = [(x - gap, y - gap, x + gap, y + gap) for x, y in points]
    placed = []
    for index, ((x, y), word) in enumerate(zip(points, words, strict=True)):
        width = len(word) * letter
        corners = (
            (x + gap, y - height / 2),
            (x - gap - width, y - height / 2),
            (x - width / 2, y - gap - height),
            (x - width / 2, y + gap),
        )
        for left, top in corners:
            box = (left, top, left + width, top + height)
            own = taken[index]
            if _inside(box, area) and not any(
                _overlap(box, other) for other in taken if other is not own
            ):
                taken.append(box)
                placed.append((index, left, top + 0.82 * height))
                break
    return placed


def _inside(box: Box, area: Box) -> bool:
    return (
        box[0] >= area[0] and box[1] >= area[1] and box[2] <= area[2] and box[3] <= area[3]
    )  # fmt: skip


def _overlap(one: Box, other: Box) -> bool:
    return (
        one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
    )  # fmt: skip
