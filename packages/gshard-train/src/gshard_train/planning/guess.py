"""Guesses that learn: each corrected by what came of the candidate that is nearest to it."""

from collections.abc import Sequence

from gshard_train.planning.row import Candidate, Row

# How much it says of a candidate that it shares this field: mesh, rules, num_groups, dispatch,
# pipeline_microbatches, remat, microbatches.
_WEIGHTS = (3, 3, 1, 2, 1, 1, 1)


class Guess:
    """What is to be expected of candidates.

    Args:
      rows: of those that were compiled.
    """

    def __init__(self, rows: Sequence[Row]):
        self._seconds = [
            (row.candidate, row.seconds / row.candidate.floor.guessed_seconds)
            for row in rows
            if row.seconds is not None
        ]
        self._bytes = [(row.candidate, _share(row)) for row in rows if row.bytes is not None]

    def seconds(self, candidate: Candidate) -> float:
        """Of a step, never below the floor."""
        guessed = candidate.floor.guessed_seconds * _of_nearest(self._seconds, candidate)
        return max(guessed, candidate.floor.seconds)

    def bytes(self, candidate: Candidate) -> float:
        """Of the peak on one device: what lies there is known, the rest is corrected."""
        floor = candidate.floor
        rest = floor.guessed_bytes - floor.bytes
        return floor.bytes + rest * _of_nearest(self._bytes, candidate)


def _share(row: Row) -> float:
    """By what the room beside the state is larger than it was guessed."""
    floor = row.candidate.floor
    return max(0, (row.bytes or 0) - floor.bytes) / max(1, floor.guessed_bytes - floor.bytes)


def _of_nearest(known: Sequence[tuple[Candidate, float]], candidate: Candidate) -> float:
    """The correction of the nearest one, the newest of several; 1 where nothing is known."""
    if not known:
        return 1.0
    fields = candidate.fields

    def nearness(each: tuple[int, tuple[Candidate, float]]) -> tuple[int, int]:
        number, (other, _) = each
        pairs = zip(_WEIGHTS, fields, other.fields, strict=True)
        return sum(weight for weight, one, two in pairs if one == two), number

    return max(enumerate(known), key=nearness)[1][1]
