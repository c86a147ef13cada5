"""Learning a SentencePiece model from text."""

import io
import pathlib
import re
from collections.abc import Iterable, Iterator, Sequence

from gshard_m4.input_error import InputError
from gshard_m4.vocabulary.model import EOS, PAD, RULES, UNK

# The result depends on how many threads add up the counts: fixed, so that it is always the same.
_THREADS = 2
# SentencePiece leaves out longer lines, of 4192 bytes by default; here none is (the most it takes).
_LONGEST_LINE = 2**30
_WARNINGS = 2  # The level of SentencePiece's log below which it says nothing.

# What SentencePiece says of a size that does not fit the text.
_TOO_HIGH = re.compile(r"Vocabulary size too high .* <= (\d+)\.")
_TOO_LOW = re.compile(r"smaller than required_chars\. \d+ vs (\d+)\.")

_TOO_OLD = (
    "learning a vocabulary needs sentencepiece 0.2.3, {} is installed, as the extra gshard-m4[beam]"
    " has it; learn in an environment without Beam (models can be used with both)"
)


def train(
    texts: Iterable[str],
    path: str | pathlib.Path,
    *,
    size: int,
    character_coverage: float = 0.9995,
    byte_fallback: bool = False,
    required_chars: str = "",
    user_defined_symbols: Sequence[str] = (),
) -> None:
    """Writes a unigram SentencePiece model of `size` pieces, learnt from texts, to path.

    Digits are split. Characters beyond `character_coverage` become bytes with `byte_fallback`, and
    unknown without. Each of `user_defined_symbols` is always one piece, with the ids after unknown.

    Raises:
        ValueError: where the text does not give that many pieces, or its characters alone are more.
        InputError: where the sentencepiece that is installed is too old.
    """
    model = learn(
        texts,
        size=size,
        character_coverage=character_coverage,
        byte_fallback=byte_fallback,
        required_chars=required_chars,
        user_defined_symbols=user_defined_symbols,
    )
    pathlib.Path(path).write_bytes(model)


def learn(
    texts: Iterable[str],
    *,
    size: int,
    character_coverage: float = 0.9995,
    byte_fallback: bool = False,
    required_chars: str = "",
    user_defined_symbols: Sequence[str] = (),
) -> bytes:
    """The model that `train` writes."""
    import sentencepiece

    sentencepiece.set_min_log_level(_WARNINGS)
    try:
        normalizer = sentencepiece.SentencePieceNormalizer(norm_map=list(RULES.items()))
    except TypeError:
        raise InputError([_TOO_OLD.format(sentencepiece.__version__)]) from None
    model = io.BytesIO()
    counted = _Counted(texts)
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(counted),
            model_writer=model,
            vocab_size=size,
            model_type="unigram",
            character_coverage=character_coverage,
            byte_fallback=byte_fallback,
            required_chars=required_chars,
            user_defined_symbols=list(user_defined_symbols),
            normalizer=normalizer,
            split_digits=True,
            pad_id=PAD,
            eos_id=EOS,
            unk_id=UNK,
            bos_id=-1,
            num_threads=_THREADS,
            max_sentence_length=_LONGEST_LINE,
            minloglevel=_WARNINGS,
        )
    except RuntimeError as error:
        if counted.error is not None:
            raise counted.error from None
        raise ValueError(_fault(size, counted.count, str(error))) from None
    return model.getvalue()


class _Counted:
    """Texts, their number, and the error that ended them, which SentencePiece hides."""

    def __init__(self, texts: Iterable[str]):
        self._texts = texts
        self.count = 0
        self.error: BaseException | None = None

    def __iter__(self) -> Iterator[str]:
        try:
            for text in self._texts:
                self.count += 1
                yield text
        except BaseException as error:
            self.error = error
            raise


def _fault(size: int, count: int, message: str) -> str:
    texts = "1 text" if count == 1 else f"{count:,} texts"
    start = f"vocabulary: cannot learn {size} pieces from {texts}"
    if not count:
        return f"{start}: there is nothing to learn from"
    if high := _TOO_HIGH.search(message):
        return f"{start}: the largest size that this text gives is {high[1]}"
    if low := _TOO_LOW.search(message):
        return (
            f"{start}: its characters alone take {low[1]}; use at least that size, or a lower"
            " character coverage"
        )
    return f"{start} ({message})"
