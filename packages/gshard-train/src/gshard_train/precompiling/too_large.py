"""A program that is too large for the chip, as a fault of its job."""

from pathlib import Path

from gshard_annotate.inspector.too_large import Piece, TooLargeError
from gshard_train.precompiling.job import Allocation, Fault


def too_large(error: TooLargeError) -> Fault:
    """The fault that the inspector's error tells."""
    return Fault(
        kind="too large",
        message=str(error).removeprefix("inspect: "),
        needed_bytes=error.needed,
        limit_bytes=error.limit,
        allocations=tuple(map(_allocation, error.pieces)),
    )


def _allocation(piece: Piece) -> Allocation:
    source = piece.source
    return Allocation(
        bytes=piece.bytes,
        shape=piece.shape,
        op_name=piece.op_name,
        source=f"{Path(source.file).name}:{source.line}" if source else "",
    )
