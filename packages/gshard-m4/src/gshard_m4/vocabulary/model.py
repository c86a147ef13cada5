"""A SentencePiece model: ids of text and back. Pad is 0, end of sentence 1, unknown 2."""

import functools
import pathlib
from collections.abc import Iterable, Sequence

PAD, EOS, UNK = 0, 1, 2

# All that a model does to text before it cuts it: other spaces and the old Ethiopic word separator
# become a space, U+2010 a hyphen; zero-width space, soft hyphen, byte order mark and bidirectional
# controls go. Joiners (U+200C, U+200D) are spelling, and case is meaning: they stay.
SPACES = "\u00a0\u1361\u2007\u2009\u202f\u3000"
INVISIBLE = (
    "\u00ad\u200b\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\ufeff"
)
RULES = dict.fromkeys(SPACES, " ") | dict.fromkeys(INVISIBLE, "") | {"\u2010": "-"}


class Vocabulary:
    """A SentencePiece model that is read once and encodes many texts at a time."""

    def __init__(self, path: str | pathlib.Path, model: bytes | None = None):
        """Reads the model of a file, or takes one that is to have that path.

        Raises:
            FileNotFoundError: where there is no such file.
            ValueError: for what is no SentencePiece model, or has other special ids.
        """
        import sentencepiece

        self.path = pathlib.Path(path)
        if model is None and not self.path.is_file():
            raise FileNotFoundError(
                f"vocabulary: no file {str(self.path)!r}; give the path of a SentencePiece .model"
            )
        self._model = sentencepiece.SentencePieceProcessor()
        try:
            self._model.LoadFromSerializedProto(model or self.path.read_bytes())
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

    def has_piece(self, piece: str) -> bool:
        """Whether the model has exactly this piece, such as the tag `<2de>`."""
        return self._model.piece_to_id(piece) != UNK

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

    @functools.cached_property
    def byte_ids(self) -> frozenset[int]:
        """The pieces that are one byte of a character that has no piece of its own."""
        return frozenset(i for i in range(self.size) if self._model.is_byte(i))


def normalize(text: str) -> str:
    """Text as a model of `train` sees it: single plain spaces, nothing invisible."""
    return " ".join(text.translate(_TABLE).split())


def tag(language: str) -> str:
    """The piece that says which language a text is in, `<2de>` (as MADLAD-400 writes targets)."""
    return f"<2{language}>"


_TABLE = str.maketrans(RULES)
