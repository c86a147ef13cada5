r"""Translates with a trained model, as the gin files that trained it say.

    python -m gshard_train.infer --gin_file=gshard_m4/configs/quickstart.gin \
        --gin.MODEL_DIR="'/tmp/model'"

Writes MODEL_DIR/translations/<split>/<task>.jsonl and, last, a manifest beside them.
"""

from gshard_train import binary, config


def main(loaded: config.LoadedConfig, dry_run: bool) -> None:
    """Decodes with the arguments that are bound to `gshard_train.inference.infer`."""
    loaded.call("gshard_train.inference.infer", dry_run=dry_run)


def run() -> None:
    """Entry point of `gshard-infer`."""
    binary.run("gshard-infer", __doc__ or "", main)


if __name__ == "__main__":
    run()
