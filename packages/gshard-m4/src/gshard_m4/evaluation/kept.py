"""The translations that a report keeps, so that another system can be tested against them."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

from gshard_m4.evaluation.pairing import Choice
from gshard_m4.evaluation.reading import read_splits
from gshard_m4.evaluation.scores import Scores
from gshard_m4.evaluation.translations import Find, Split, Task


def kept_name(split: str) -> str:
    """The file of one split, which is also good for `--hypotheses`."""
    return f"translations-{split}.jsonl.gz"


def kept_files(splits: Sequence[Split]) -> dict[str, bytes]:
    """The files with everything that was scored, by name."""
    return {
        kept_name(split.name): gzip.compress(
            "".join(line for task in split.tasks for line in _lines(task)).encode(), 4, mtime=0
        )
        for split in splits
    }


def read_kept(folder: Path, scores: Scores, find: Find) -> list[Split] | None:
    """The translations that a report's folder keeps; None where it does not keep all.

    Raises:
      InputError: a file that is not as it was written.
    """
    paths = {split.name: folder / kept_name(split.name) for split in scores.splits}
    if not all(path.is_file() for path in paths.values()):
        return None
    found = []
    for name, path in paths.items():
        found += read_splits(path, None, None, Choice(name, find, as_is=True))
    return found


def _lines(task: Task):
    for row in task.rows:
        fields = {
            "language": task.language.code,
            "id": row.id,
            "source": row.source,
            "reference": row.reference,
            "prediction": row.prediction,
            "truncated": row.truncated,
        }
        known = {name: value for name, value in fields.items() if value is not None}
        yield json.dumps(known, ensure_ascii=False) + "\n"
