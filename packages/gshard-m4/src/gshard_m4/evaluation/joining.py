"""Which line of one side of a test set belongs to which reference."""

from collections.abc import Sequence

from gshard_m4.evaluation.alignment import explain
from gshard_m4.evaluation.records import folded
from gshard_m4.evaluation.sides import Text

_IDS_NAMED = 3


def joined(
    code: str, what: str, side: Text, wanted: Text, faults: list[str]
) -> Sequence[int] | None:
    """For every reference the line of the other side: by id where both have ids, else in order.

    Ids that only one side has must count the lines in order; any others say that the order is not
    that of the file.
    """
    before = len(faults)
    ids, wanted_ids = _ids(code, side, faults), _ids(code, wanted, faults)
    if len(faults) > before:
        return None
    if ids and wanted_ids:
        return _by_id(code, (ids, side), (wanted_ids, wanted), faults)
    counts = len(side.records), len(wanted.records)
    if counts[0] != counts[1]:
        faults.append(
            f"{code}: {what} {side.path} has {counts[0]:,} lines, references {wanted.path} has "
            f"{counts[1]:,}{_reason(what, side, wanted)}"
        )
        return None
    for having, text, lacking in ((ids, side, wanted), (wanted_ids, wanted, side)):
        line = _first_out_of_order(having, text)
        if line is not None:
            given = text.records[line].fields["id"]
            faults.append(
                f"{code}: {text.path} line {text.records[line].line}: id {given!r} does not count "
                f"the lines in order (from 0 or 1), and {lacking.path} has no ids to put the lines "
                "together by; give both ids, or neither"
            )
            return None
    return range(counts[0])


def _by_id(
    code: str,
    having: tuple[dict[str, int], Text],
    wanting: tuple[dict[str, int], Text],
    faults: list[str],
) -> Sequence[int] | None:
    (ids, side), (wanted_ids, wanted) = having, wanting
    missing = [f"{one!r}" for one in wanted_ids if one not in ids]
    extra = [f"{one!r}" for one in ids if one not in wanted_ids]
    for ones, lacking, other in ((missing, side, wanted), (extra, wanted, side)):
        if ones:
            named = ", ".join(ones[:_IDS_NAMED]) + (", ..." if len(ones) > _IDS_NAMED else "")
            faults.append(f"{code}: {lacking.path} lacks {len(ones)} of the ids of "
                          f"{other.path}: {named}")  # fmt: skip
    return None if missing or extra else [ids[one] for one in wanted_ids]


def _first_out_of_order(ids: dict[str, int], text: Text) -> int | None:
    """The first line whose id is not its number; None where all are, or there are no ids."""
    if not ids:
        return None
    given = [str(record.fields["id"]) for record in text.records]
    first = 1 if given[0] == "1" else 0
    return next((i for i, one in enumerate(given) if one != str(i + first)), None)


def _reason(what: str, side: Text, wanted: Text) -> str:
    field = "source" if what == "sources" else "prediction"
    other = [str(record.fields.get(field, "")) for record in side.records]
    references = [str(record.fields.get("reference", "")) for record in wanted.records]
    if len(references) == 1 and references[0].count("\t") == len(other) - 1:
        return ": that line has a reference in each of its columns; give one a line (transposed)"
    ordered = sorted([(other, what), (references, "references")], key=lambda one: len(one[0]))
    (shorter, one), (longer, two) = ordered
    reason = explain(shorter, longer, (one, two))
    return f": {reason}" if reason else "; one line for each phrase is needed"


def _ids(code: str, text: Text, faults: list[str]) -> dict[str, int]:
    """Positions by id; none, and a fault, where ids are missing on some lines or repeat.

    As text, for JSON has numbers where TSV has digits.
    """
    found: dict[str, int] = {}
    without = 0
    repeated: list[int] = []
    for position, record in enumerate(text.records):
        given = record.fields.get("id")
        without += given is None
        if given is not None and found.setdefault(str(given), position) != position:
            repeated.append(record.line)
    if repeated:
        fault = "id repeats that of an earlier line"
        faults.append(f"{code}: {text.path}{folded(fault, repeated)}")
    if without and found:
        faults.append(f"{code}: {text.path}: {without} of {len(text.records)} lines have no id")
    return found
