r"""Trains the model that gin files describe.

    python -m gshard_train.train --gin_file=gshard_m4/configs/quickstart.gin \
        --gin.MODEL_DIR="'/tmp/model'"

The model directory then holds config.gin (everything that was set, which runs again as the only
--gin_file), checkpoints/, metrics.jsonl and TensorBoard's events. Run again, training goes on from
the last checkpoint.
"""

from gshard_train import binary, config

TRAIN = "gshard_train.training.train"
# Chosen for one checkpoint. Kept, they would choose for each later change too: whoever starts the
# run again with its config.gin would be told of none.
_ONE_OFF = ("changed_feed", "changed_model", "damaged_checkpoints")


def main(loaded: config.LoadedConfig, dry_run: bool) -> None:
    """Trains with the arguments that are bound to `gshard_train.training.train`."""
    loaded.call(TRAIN, effective_config=kept(loaded), dry_run=dry_run)


def kept(loaded: config.LoadedConfig) -> str:
    """The configuration that a run keeps."""
    return loaded.text_without(TRAIN, _ONE_OFF)


def run() -> None:
    """Entry point of `gshard-train`."""
    binary.run("gshard-train", __doc__ or "", main)


if __name__ == "__main__":
    run()
