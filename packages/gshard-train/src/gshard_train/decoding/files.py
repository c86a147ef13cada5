"""The translations of a split on disk: one file of JSON lines a task, and a manifest."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gshard_train.decoding.decoder import Hypothesis
from gshard_train.measuring.held_out import Example, TaskSplit

MANIFEST = "manifest.json"


def being_written(directory: Path) -> Path:
    """Where a split lies until all of it is there."""
    return directory.with_name(directory.name + ".new")


def read_manifest(directory: Path) -> dict[str, Any]:
    """What a finished split says of itself; nothing if it is not there or cannot be read."""
    try:
        manifest = json.loads((directory / MANIFEST).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return manifest if isinstance(manifest, dict) else {}


def write_split(
    directory: Path,
    tasks: Sequence[TaskSplit],
    hypotheses: Mapping[int, Hypothesis],
    manifest: Mapping[str, Any],
) -> None:
    """Writes one split's translations beside the old ones and puts them in their place.

    Args:
      directory: where they come to lie, as a whole.
      tasks: the examples.
      hypotheses: by the examples' places, counted through all tasks.
      manifest: what is said of them beside the number of lines of each task.
    """
    new = being_written(directory)
    new.mkdir(parents=True, exist_ok=True)
    for stale in new.glob("*.jsonl"):  # of a run that was stopped here, maybe with other tasks
        stale.unlink()
    place = 0
    for task in tasks:
        with (new / f"{task.task}.jsonl").open("w", encoding="utf-8") as file:
            for number, example in enumerate(task.examples):
                line = _line(number, example, hypotheses[place], task)
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
                place += 1
    counts = {task.task: len(task.examples) for task in tasks}
    text = json.dumps({"tasks": counts, **manifest}, indent=1, ensure_ascii=False)
    (new / MANIFEST).write_text(text, "utf-8")
    _replace(directory, new)


def _replace(directory: Path, new: Path) -> None:
    old = directory.with_name(directory.name + ".old")
    shutil.rmtree(old, ignore_errors=True)
    if directory.exists():
        directory.rename(old)
    new.rename(directory)
    shutil.rmtree(old, ignore_errors=True)


def _line(number: int, example: Example, hypothesis: Hypothesis, task: TaskSplit) -> dict[str, Any]:
    return {
        "id": number,
        "source": example.source,
        "reference": example.reference,
        "prediction": task.target_vocabulary.decode(hypothesis.tokens),
        "score": hypothesis.score,
        "truncated": hypothesis.truncated,
    }
