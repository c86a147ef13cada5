"""What is said of a checkpoint whose tensors are not those of the model."""

from etils import epath

CHOICE = (
    "; or, to take over what fits and begin with the rest anew, --gin.train.changed_model=\"'fit'\""
)
NOTHING_FITS = "; none of its parameters fits, so that changed_model='fit' has nothing to take over"
_SHOWN = 20  # tensors named in one message


def text(step: int, directory: epath.Path, lines: list[str], advice: str = "") -> str:
    """A refusal that names the tensors that differ; `lines` has one for each, as `differences`."""
    optimizer_alone = all(line.startswith("opt_state/") for line in lines)
    other = "optimizer" if optimizer_alone else "model"
    agree = ", none of the parameters," if optimizer_alone else ""
    first = (
        f"checkpoint {step} in {directory} is of another {other}: {len(lines)} tensors "
        f"differ{agree} and nothing was changed; use the config.gin beside it, or another "
        f"MODEL_DIR for this {other}"
    )
    return "\n".join([first + advice, *shortened(lines)])


def shortened(lines: list[str]) -> list[str]:
    """The first lines, indented, and how many more there are."""
    more = [f"and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
    return [f"  {line}" for line in (*lines[:_SHOWN], *more)]
