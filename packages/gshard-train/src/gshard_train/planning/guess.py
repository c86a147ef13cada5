"""Guesses that learn: each corrected by what came of the candidate that is nearest to it."""

from collections.abc import Sequence

from gshard_train.planning.row import Candidate, Row

# How much it says of a candidate that it shares this field: mesh, rules, num_groups, dispatch,
# pipeline_microbatches, remat, microbatches.
_WEIGHTS = (3, 3, 1, 2, 1, 1, 1)
# By what share a guess may be wrong for each point that the nearest does not share.
_DOUBT = 0.01


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
        correction, _ = _of_nearest(self._seconds, candidate)
        return max(candidate.floor.guessed_seconds * correction, candidate.floor.seconds)

    def hopeful_seconds(self, candidate: Candidate) -> float:
        """The same, less what it may be wrong by; what is unlike all others may surprise.

        Otherwise all near relatives of a good one would come before anything else.
        """
        _, apart = _of_nearest(self._seconds, candidate)
        return self.seconds(candidate) * (1 - _DOUBT * apart)

    def bytes(self, candidate: Candidate) -> float:
        """Of the peak on one device: what lies there is known, the rest is corrected."""
        floor = candidate.floor
        rest = floor.guessed_bytes - floor.bytes
        return floor.bytes + rest * _of_nearest(self._bytes, candidate)[0]


def _share(row: Row) -> float:
    """By what the room beside the state is larger than it was guessed."""
    floor = row.candidate.floor
    return max(0, (row.bytes or 0) - floor.bytes) / max(1, floor.guessed_bytes - floor.bytes)


def _of_nearest(
    known: Sequence[tuple[Candidate, float]], candidate: Candidate
) -> tuple[float, int]:
    """The correction of the nearest one, the newest of several, and how far it is.

    Where nothing is known no correction, and all are equally far.
    """
    if not known:
        return 1.0, 0

    def apart(each: tuple[Candidate, float]) -> int:
        pairs = zip(_WEIGHTS, candidate.fields, each[0].fields, strict=True)
        return sum(weight for weight, one, two in pairs if one != two)

    nearest = min(reversed(known), key=apart)
    return nearest[1], apart(nearest)
