r"""Goes on from a run's checkpoint with another number of experts.

    python -m gshard_train.resize --gin_file=gshard_m4/configs/quickstart.gin \
        --gin.MODEL_DIR="'/tmp/sixteen'" --gin.config.TransformerConfig.num_experts=16 \
        --from_dir=/tmp/model --how=copy --dry_run

The gin files describe the new run, as for training; --from_dir is the directory of the old one,
which is only read. What becomes of each tensor is printed, and the checkpoint written to MODEL_DIR,
from where gshard-train goes on.
"""

from typing import Any

from absl import flags

from gshard_train import binary, config
from gshard_train.train import TRAIN, kept


class _Step(flags.IntegerParser):
    """A step, told in words where it is none."""

    def convert(self, argument: Any) -> int:
        try:
            return super().convert(argument)
        except (TypeError, ValueError):
            raise ValueError("must be a whole number, that of a checkpoint") from None


def define(values: flags.FlagValues = flags.FLAGS) -> None:
    """Defines the flags that the other binaries do not have."""
    flags.DEFINE_string("from_dir", "", "The old run's directory.", flag_values=values)
    flags.DEFINE_string(
        "how",
        "",
        "split, merge, copy or average (experts), or upcycle (a dense model's layers to experts).",
        flag_values=values,
    )
    flags.DEFINE(
        _Step(), "step", None, "Of the checkpoint; the newest by default.", flag_values=values
    )
    flags.DEFINE_float(
        "noise",
        0.0,
        "Added to new experts' matrices, as a share of each one's standard deviation.",
        flag_values=values,
    )
    flags.DEFINE_float(
        "router_std", 0.02, "Standard deviation of a new router, upcycling.", flag_values=values
    )


def main(loaded: config.LoadedConfig, dry_run: bool) -> None:
    """Makes the checkpoint for the experiment that training would get."""
    from gshard_train.resizing.resize import resize

    values = flags.FLAGS
    resize(
        loaded.arguments(TRAIN)["experiment"],
        from_dir=values.from_dir,
        how=values.how,
        step=values.step,
        noise=values.noise,
        router_std=values.router_std,
        effective_config=kept(loaded),
        dry_run=dry_run,
    )


def run() -> None:
    """Entry point of `gshard-resize`."""
    define()
    binary.run("gshard-resize", __doc__ or "", main)


if __name__ == "__main__":
    run()
