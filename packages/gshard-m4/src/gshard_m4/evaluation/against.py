"""What scores are compared with: a baseline's numbers by set, language and metric."""

from collections.abc import Mapping
from dataclasses import dataclass

from gshard_m4.evaluation.scores import Baseline

ALL_SETS = ""  # of a table that names no set
TABLE = "table"


@dataclass(frozen=True)
class Against:
    """A baseline and its scores: set, then language, then metric.

    `references` has the hashes of a run's references by set and language.
    """

    baseline: Baseline
    values: Mapping[str, Mapping[str, Mapping[str, float]]]
    references: Mapping[str, Mapping[str, str]]
