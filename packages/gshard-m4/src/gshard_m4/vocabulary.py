"""SentencePiece vocabularies: ids of text and back. Pad is 0, end of sentence 1, unknown 2."""

import io
import pathlib
from collections.abc import Iterable, Sequence

import sentencepiece

PAD, EOS, UNK = 0, 1, 2

# All that a model does to text before it cuts it: other spaces and the old Ethiopic word separator
# become a space, U+2010 a hyphen; zero-width space, soft hyphen, byte order mark and bidirectional
# controls go. Joiners (U+200C, U+200D) are spelling, and case is meaning: they stay.
_SPACES = "\u00a0\u1361\u2007\u2009\u202f\u3000"
_INVISIBLE = (
    "\u00ad\u200b\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\ufeff"
)
_RULES = dict.fromkeys(_SPACES, " ") | dict.fromkeys(_INVISIBLE, "") | {"\u2010": "-"}


class Vocabulary:
    """A SentencePiece model that is read once and encodes many texts at a time."""

    def __init__(self, path: str | pathlib.Path):
        self.path = pathlib.Path(path)
        if not self.path.is_file():
            raise FileNotFoundError(
                f"vocabulary: no file {str(self.path)!r}; give the path of a SentencePiece .model"
            )
        self._model = sentencepiece.SentencePieceProcessor()
        try:
            self._model.LoadFromSerializedProto(self.path.read_bytes())
        except RuntimeError as error:
            raise ValueError(
                f"vocabulary: {str(self.path)!r} is not a SentencePiece model ({error})"
            ) from None
        found = self._model.pad_id(), self._model.eos_id(), self._model.unk_id()
        if found != (PAD, EOS, UNK):
            raise ValueError(
                f"vocabulary: {str(self.path)!r} has pad, eos, unk at {found}, required are"
                f" {(PAD, EOS, UNK)}; train it with gshard_m4.vocabulary.train"
            )

    @property
    def size(self) -> int:
        """Number of pieces."""
        return self._model.get_piece_size()

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text, without end of sentence, on the calling thread."""
        return self._model.encode(list(texts), num_threads=1)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids up to the first end of sentence; padding and unknown ids are dropped."""
        kept = []
        for i in map(int, ids):
            if i == EOS:
                break
            if UNK < i < self.size:
                kept.append(i)
        return self._model.decode(kept)


def normalize(text: str) -> str:
    """Text as a model of `train` sees it: single plain spaces, nothing invisible."""
    return " ".join(text.translate(str.maketrans(_RULES)).split())


def train(
    texts: Iterable[str],
    path: str | pathlib.Path,
    *,
    size: int,
    character_coverage: float = 0.9995,
    byte_fallback: bool = False,
    required_chars: str = "",
) -> None:
    """Writes a unigram SentencePiece model of `size` pieces, learnt from texts, to path.

    Digits are split. Characters beyond `character_coverage` become bytes with `byte_fallback`, and
    unknown without.
    """
    texts = list(texts)
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts),
            model_writer=model,
            vocab_size=size,
            model_type="unigram",
            character_coverage=character_coverage,
            byte_fallback=byte_fallback,
            required_chars=required_chars,
            normalizer=sentencepiece.SentencePieceNormalizer(norm_map=list(_RULES.items())),
            split_digits=True,
            pad_id=PAD,
            eos_id=EOS,
            unk_id=UNK,
            bos_id=-1,
            num_threads=2,
            minloglevel=1,
        )
    except RuntimeError as error:
        count = "1 text" if len(texts) == 1 else f"{len(texts)} texts"
        raise ValueError(f"vocabulary: cannot learn {size} pieces from {count} ({error})") from None
    pathlib.Path(path).write_bytes(model.getvalue())
