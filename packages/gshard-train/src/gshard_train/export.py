r"""Exports a trained model: parameters by name, and a program that translates on its own.

    python -m gshard_train.export --gin_file=gshard_m4/configs/quickstart.gin \
        --gin.MODEL_DIR="'/tmp/model'" --gin.export.output_dir="'/tmp/exported'"

MODEL_DIR is only read.
"""

from gshard_train import binary, config


def main(loaded: config.LoadedConfig, dry_run: bool) -> None:
    """Exports with the arguments that are bound to `gshard_train.exporting.export`."""
    loaded.call("gshard_train.exporting.export", dry_run=dry_run)


def run() -> None:
    """Entry point of `gshard-export`."""
    binary.run("gshard-export", __doc__ or "", main)


if __name__ == "__main__":
    run()
