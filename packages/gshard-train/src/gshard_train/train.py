r"""Trains the model that gin files describe.

    python -m gshard_train.train --gin_file=gshard_m4/configs/quickstart.gin \
        --gin.MODEL_DIR="'/tmp/model'"

The model directory then holds config.gin (everything that was set, which runs again as the only
--gin_file), checkpoints/, metrics.jsonl and TensorBoard's events. Run again, training goes on from
the last checkpoint.
"""

from gshard_train import binary, config


def main(loaded: config.LoadedConfig, dry_run: bool) -> None:
    """Trains with the arguments that are bound to `gshard_train.training.train`."""
    loaded.call("gshard_train.training.train", effective_config=loaded.text, dry_run=dry_run)


def run() -> None:
    """Entry point of `gshard-train`."""
    binary.run("gshard-train", __doc__ or "", main)


if __name__ == "__main__":
    run()
