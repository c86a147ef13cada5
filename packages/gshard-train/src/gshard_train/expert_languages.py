"""Which experts the text of each language went to: `experts.json`.

Axes: N languages, E experts.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gshard_train import state
from gshard_train.experiment import Experiment, Prepared
from gshard_train.held_out import TaskSplit

FILE_NAME = "experts.json"


def collect(
    experiment: Experiment,
    prepared: Prepared,
    params: state.Params,
    tasks: Sequence[TaskSplit],
    *,
    batch_size: int,
    language_of: Callable[[str], str] = str,
) -> dict[str, Any]:
    """The shares of each language's tokens by layer and expert, as `write` takes them."""
    raise NotImplementedError


def write(shares: dict[str, Any], directory: Path) -> None:
    """Writes `experts.json`, whole or not at all."""
    raise NotImplementedError
