"""What is said of a checkpoint whose tensors are not those of the model."""

import re

from etils import epath

CHOICE = (
    "; or, to take over what fits and begin with the rest anew, --gin.train.changed_model=\"'fit'\""
)
NOTHING_FITS = "; none of its parameters fits, so that changed_model='fit' has nothing to take over"
_SHOWN = 20  # tensors named in one message
_SHOWN_OF_OPTIMIZER = 5  # where the optimizer has a name itself
_OPTIMIZER = re.compile(r"^(?:\w+\.)*Experiment\.optimizer = (.+)$", re.MULTILINE)


def text(
    step: int, directory: epath.Path, lines: list[str], advice: str = "", config: str = ""
) -> str:
    """A refusal that names the tensors that differ.

    Args:
      step: of the checkpoint.
      directory: where it is.
      lines: one for each, as `tensors.differences` has them.
      advice: what to do beside what is said here.
      config: of the run that saved it, which names its optimizer.
    """
    optimizer_alone = all(line.startswith("opt_state/") for line in lines)
    other = "optimizer" if optimizer_alone else "model"
    agree = ", none of the parameters," if optimizer_alone else ""
    first = (
        f"checkpoint {step} in {directory} is of another {other}: {len(lines)} tensors "
        f"differ{agree} and nothing was changed; use the config.gin beside it, or another "
        f"MODEL_DIR for this {other}"
    )
    if optimizer_alone and (bound := _OPTIMIZER.search(config)):
        was = f"  the run that saved it has optimizer = {bound[1]}"
        return "\n".join([first + advice, was, *shortened(lines, shown=_SHOWN_OF_OPTIMIZER)])
    return "\n".join([first + advice, *shortened(lines)])


def shortened(lines: list[str], *, shown: int = _SHOWN) -> list[str]:
    """The first lines, indented, and how many more there are."""
    more = [f"and {len(lines) - shown} more"] if len(lines) > shown else []
    return [f"  {line}" for line in (*lines[:shown], *more)]
