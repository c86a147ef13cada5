r"""Evaluates a trained model on the held-out splits of seqio tasks.

    python -m gshard_train.eval --gin_file=gshard_m4/configs/quickstart.gin \
        --gin.MODEL_DIR="'/tmp/model'"

Writes MODEL_DIR/evaluation/<step>/<split>.json and reads everything else.
"""

from gshard_train import binary, config


def main(loaded: config.LoadedConfig, dry_run: bool) -> None:
    """Evaluates with the arguments that are bound to `gshard_train.evaluating.evaluate`."""
    loaded.call("gshard_train.evaluating.evaluate", dry_run=dry_run)


def run() -> None:
    """Entry point of `gshard-eval`."""
    binary.run("gshard-eval", __doc__ or "", main)


if __name__ == "__main__":
    run()
