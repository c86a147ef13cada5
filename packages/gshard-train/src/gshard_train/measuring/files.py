"""What an evaluation leaves in MODEL_DIR.

evaluation/<step>/<split>/<task>.jsonl    one object an example, with seqio's names too
evaluation/<step>/<split>/manifest.json   how many of each task, and how they were decoded
evaluation/<step>/<split>/experts.json    which experts the text of each language went to
evaluation/<step>/<split>.json            the results, written last
evaluation.jsonl                          the numbers of all steps, one line a step and split
"""

import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gshard_train.decoding.decoder import Hypothesis
from gshard_train.measuring.held_out import Example
from gshard_train.measuring.task_metrics import Measured

DIRECTORY = "evaluation"
LINES = "evaluation.jsonl"


def write_split(
    directory: Path,
    split: str,
    *,
    result: Mapping[str, Any],
    lines: Mapping[str, Sequence[Mapping[str, Any]]],
    documents: Mapping[str, Any],
) -> None:
    """Puts one split's results in the place of older ones, the summary last.

    Args:
      directory: that of the step.
      split: the split's name.
      result: what `<split>.json` says.
      lines: of each task's file, by the task's name.
      documents: further JSON files beside those, by file name.
    """
    summary = directory / f"{split}.json"
    summary.unlink(missing_ok=True)
    folder, new = directory / split, directory / f"{split}.new"
    for old in (folder, new):
        shutil.rmtree(old, ignore_errors=True)
    new.mkdir(parents=True)
    for task, objects in lines.items():
        text = "".join(f"{_json(one)}\n" for one in objects)
        (new / f"{task}.jsonl").write_text(text, "utf-8")
    for name, document in documents.items():
        (new / name).write_text(_json(document), "utf-8")
    new.rename(folder)
    _replace(summary, _json(result, indent=1))


def lines(
    examples: Sequence[Example], hypotheses: Sequence[Hypothesis] | None, measured: Measured
) -> list[dict[str, Any]]:
    """A task's file: for each example the fields that decoding writes, then seqio's."""
    columns = {
        name: values
        for name, values in {**measured.inferences, "target": measured.targets}.items()
        if name != "aux_value" and len(values)
    }
    if hypotheses is not None:
        columns |= {
            "prediction_score": [hypothesis.score for hypothesis in hypotheses],
            "truncated": [hypothesis.truncated for hypothesis in hypotheses],
        }
    return [
        {
            "id": number,
            "source": example.source,
            "reference": example.reference,
            **{name: values[number] for name, values in columns.items()},
            "input": dict(example.row),
        }
        for number, example in enumerate(examples)
    ]


def read_result(model_dir: str | os.PathLike[str], step: int, split: str) -> dict[str, Any] | None:
    """What was written for a step and split, None where nothing whole is there."""
    try:
        return json.loads(Path(model_dir, DIRECTORY, str(step), f"{split}.json").read_bytes())
    except (FileNotFoundError, ValueError):
        return None


def write_lines(model_dir: str | os.PathLike[str]) -> None:
    """Makes `evaluation.jsonl` of the results of all steps that are there.

    So two programs that evaluate one run lose nothing of each other.
    """
    text = "".join(f"{_json(one)}\n" for one in _results(Path(model_dir, DIRECTORY)))
    _replace(Path(model_dir, LINES), text)


def _results(directory: Path) -> Iterator[dict[str, Any]]:
    steps = sorted((path for path in directory.iterdir() if path.name.isdigit()), key=_number)
    for folder in steps:
        for path in sorted(folder.glob("*.json")):
            result = read_result(directory.parent, _number(folder), path.stem)
            if result is not None:
                yield {"step": result["step"], "split": result["split"], **scalars(result)}


def scalars(result: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a result by `<task, or all>/<metric>`."""
    return {
        f"{task}/{name}": value
        for task, metrics in {"all": result["all"], **result["tasks"]}.items()
        for name, value in metrics.items()
        if isinstance(value, int | float)
    }


def _number(path: Path) -> int:
    return int(path.name)


def _replace(path: Path, text: str) -> None:
    """Writes a file whole or not at all."""
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    new.write_text(text, "utf-8")
    os.replace(new, path)


def _json(value: Any, *, indent: int | None = None) -> str:
    return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False, indent=indent)


def _plain(value: Any) -> Any:
    """What JSON has a form for: numbers that are not finite become null."""
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    for name in ("value", "textdata", "tensor"):  # seqio.metrics.Scalar, Text and Generic
        if hasattr(value, name):
            return _plain(getattr(value, name))
    return repr(value)
