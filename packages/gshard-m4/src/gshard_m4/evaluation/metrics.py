"""The metrics of sacrebleu that can be asked for, each with its signature.

spBLEU is BLEU over the pieces of the SentencePiece model of FLORES-200. Sacrebleu fetches that
model, and those of two other tokenizers, when it first meets them; here nothing is fetched: the
file must lie where sacrebleu looks for it, and spBLEU's must be the published one.
"""

import difflib
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gshard_m4.evaluation.scores import Metric
from gshard_m4.input_error import InputError

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric as SacrebleuMetric

# What `--metrics` says: key, title, whether higher is better. `exact` is always computed.
KINDS = {
    "bleu": ("bleu", "BLEU", True),
    "chrf++": ("chrfpp", "chrF++", True),
    "spbleu": ("spbleu", "spBLEU", True),
    "ter": ("ter", "TER", False),
    "exact": ("exact", "Exact", True),
}
DEFAULT = ("bleu", "chrf++", "exact")
TOKENIZER = "13a"

# Names of the files in $SACREBLEU/models and where their publishers have them (sacrebleu 2.6.0,
# tokenizers/tokenizer_spm.py).
MODEL_FILES = {
    "flores200": ("flores200sacrebleuspm", "https://tinyurl.com/flores200sacrebleuspm"),
    "flores101": (
        "sacrebleu_tokenizer_spm.model",
        "https://dl.fbaipublicfiles.com/fairseq/models/flores/sacrebleu_tokenizer_spm.model",
    ),
    "spBLEU-1K": (
        "spbleu-1k_tokenizer_spm.model",
        "https://www.dlnlp.ai/spBLEU-1K/spbleu-1k_tokenizer_spm.model",
    ),
}
MODEL_FILES["spm"] = MODEL_FILES["flores101"]
# The 4,852,054 bytes of NLLB-200's sentencepiece.bpe.model, as which the same file is published
# (facebook/nllb-200-distilled-600M).
FLORES200_SHA256 = "14bb8dfb35c0ffdea7bc01e56cea38b9e3d5efcdcb9c251d6b40538e1aab555a"


@dataclass(frozen=True)
class Asked:
    """The metrics to compute: keys of `KINDS`, BLEU's tokenizer, the hash of spBLEU's model."""

    names: tuple[str, ...] = DEFAULT
    tokenize: str = TOKENIZER
    spbleu_sha256: str = FLORES200_SHA256

    @property
    def keys(self) -> tuple[str, ...]:
        """The metrics of sacrebleu among them, in order."""
        return tuple(KINDS[name][0] for name in self.names if name != "exact")


def check(asked: Asked) -> dict[str, str]:
    """The model files that the metrics read, with their hashes.

    Raises:
      InputError: a metric or tokenizer that is not there, every one of them.
    """
    faults = list(_unknown(asked.names, KINDS, "--metrics", "metric"))
    files: dict[str, str] = {}
    if "spbleu" in asked.names:
        _check_model("flores200", asked.spbleu_sha256, files, faults)
    if "bleu" in asked.names:
        _check_tokenizer(asked, files, faults)
    if faults:
        raise InputError(faults)
    return files


def build(
    asked: Asked, references: Sequence[Sequence[str]] | None = None
) -> "dict[str, SacrebleuMetric]":
    """Sacrebleu's metrics by key, with references counted if they are given (lists of streams).

    `check` has passed. Tokenised text is told by the caller, so sacrebleu does not (`force`).
    """
    from sacrebleu.metrics import BLEU, CHRF, TER

    made: dict[str, Any] = {
        "bleu": lambda: BLEU(tokenize=asked.tokenize, references=references, force=True),
        "chrfpp": lambda: CHRF(word_order=2, references=references),
        "spbleu": lambda: BLEU(tokenize="flores200", references=references, force=True),
        "ter": lambda: TER(references=references),
    }
    return {key: made[key]() for key in asked.keys}


def described(asked: Asked, signatures: dict[str, str]) -> tuple[Metric, ...]:
    """What the scores say of their metrics."""
    kinds = (KINDS[name] for name in asked.names if name != "exact")
    return tuple(Metric(key, title, signatures[key], higher) for key, title, higher in kinds)


def _check_tokenizer(asked: Asked, files: dict[str, str], faults: list[str]) -> None:
    from sacrebleu.metrics import BLEU

    name = asked.tokenize
    unknown = list(_unknown([name], list(BLEU.TOKENIZERS), "--tokenize", "tokenizer of sacrebleu"))
    faults.extend(unknown)
    if unknown:
        return
    if name in MODEL_FILES:
        _check_model(name, asked.spbleu_sha256 if name == "flores200" else None, files, faults)
        return
    try:
        BLEU(tokenize=name)
    except (ImportError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        faults.append(f"--tokenize={name}: the tokenizer is not installed ({reason})")


def _check_model(
    tokenizer: str, sha256: str | None, files: dict[str, str], faults: list[str]
) -> None:
    name, address = MODEL_FILES[tokenizer]
    path = models_folder() / name
    if not path.is_file():
        faults.append(
            f"the {tokenizer} tokenizer needs {path}, which is not there; fetch {address} once and "
            "save it under that name (nothing is fetched here)"
        )
        return
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if sha256 is not None and found != sha256:
        faults.append(
            f"{path} is not the published {tokenizer} model: its SHA-256 is {found}, not {sha256}; "
            f"fetch {address} again, or name this one with --spbleu-sha256 and compare its scores "
            "with no others"
        )
    files[str(path)] = found


def models_folder() -> Path:
    """Where sacrebleu looks for the models of its tokenizers."""
    return Path(os.environ.get("SACREBLEU", "~/.sacrebleu")).expanduser() / "models"


def _unknown(names: Sequence[str], known: Sequence[str] | dict, flag: str, what: str):
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=0.5)
            meant = f"; did you mean {near[0]}?" if near else ""
            allowed = ", ".join(known)
            yield f"{flag}: there is no {what} {name!r}; there are {allowed}{meant}"
