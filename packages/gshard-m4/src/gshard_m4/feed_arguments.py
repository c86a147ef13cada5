"""What can be wrong with the arguments of a training feed."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from gshard_m4.encoding import SIDES
from gshard_m4.mixture import Mixture
from gshard_m4.order import WINDOW
from gshard_m4.packing import LONGEST_ROW, Packing, window_rows
from gshard_m4.vocabulary import Vocabulary, tag


def argument_faults(
    lengths: Mapping[str, int],
    batch_size: int,
    process_index: int,
    process_count: int,
    packing: Packing | None,
) -> list[str]:
    """A sentence for each argument that cannot be."""
    faults = []
    bad = {side: lengths.get(side) for side in SIDES if lengths.get(side, 0) < 2}
    if bad or set(lengths) - set(SIDES):
        faults.append(
            f"task_feature_lengths must be {{'inputs': n, 'targets': m}} with n, m >= 2,"
            f" got {dict(lengths)}"
        )
    if not 0 <= process_index < process_count:
        faults.append(f"process_index {process_index} is not in 0..{process_count - 1}")
    elif batch_size < 1:
        faults.append(f"batch_size {batch_size} is not positive")
    elif batch_size % process_count:
        below = batch_size // process_count * process_count
        near = f"{below} or {below + process_count} are" if below else f"{process_count} is"
        faults.append(
            f"batch_size {batch_size} is not a multiple of {process_count} processes: {near}"
        )
    if packing is not None and not faults:
        faults += _packing_faults(packing, lengths, batch_size)
    return faults


def _packing_faults(packing: Packing, lengths: Mapping[str, int], batch_size: int) -> list[str]:
    faults = []
    if max(lengths.values()) > LONGEST_ROW:
        faults.append(f"packing: rows have at most {LONGEST_ROW} tokens, got {dict(lengths)}")
    try:
        window_rows(packing, lengths["inputs"], batch_size)
    except ValueError as error:
        faults.append(str(error))
    if packing.window_examples is not None and packing.window_examples < 1:
        faults.append(f"packing: window_examples {packing.window_examples} is not positive")
    return faults


def check_vocabulary(
    data_dir: str | Path, vocabulary_dir: str | Path | None, models: Iterable[Path]
) -> None:
    """Raises FileNotFoundError where a vocabulary is missing."""
    if missing := [path for path in models if not path.is_file()]:
        where = data_dir if vocabulary_dir is None else vocabulary_dir
        names = " and ".join(str(path.relative_to(where)) for path in missing)
        output = "" if vocabulary_dir is None else f" --output={vocabulary_dir}"
        raise FileNotFoundError(
            f"training_feed: {where} has no {names}; run gshard-m4 vocabulary {data_dir}{output}"
        )


def mixture_faults(described: Mixture, source: Vocabulary, source_tags: bool) -> list[str]:
    """A sentence where tags lack their piece, and for languages that no window would have."""
    faults = []
    lacking = [code for code in described.rates if not source.has_piece(tag(code))]
    if source_tags and lacking:
        faults.append(
            f"source_tags: {str(source.path)!r} has no piece {', '.join(map(tag, lacking))};"
            " learn a vocabulary with them (gshard-m4 vocabulary --tags)"
        )
    rare = [code for code, rate in described.rates.items() if rate < 1 / WINDOW]
    if rare:
        faults.append(
            f"{', '.join(rare)} would have less than one of {WINDOW} examples and never be seen;"
            " raise temperature or minimum_share, or leave them out by name"
        )
    return faults
