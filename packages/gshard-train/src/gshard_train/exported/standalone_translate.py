"""Translates lines of text with an exported model.

    python translate.py < sentences.txt > translations.txt

Needs JAX and, for text, sentencepiece; nothing of the package that trained the model. From Python:

    from translate import Translator
    Translator("/path/to/export")(["Guten Morgen."])
"""

import json
import pathlib
import sys

import jax
import jax.export
import numpy as np

EOS_ID, PAD_ID = 1, 0
DTYPES = {"F32": "float32", "F16": "float16", "F64": "float64"}


class Translator:
    """The model of a directory; `config.json` there says what it was exported with.

    Args:
      directory: of the export; where this file lies by default.
    """

    def __init__(self, directory=None):
        self.directory = pathlib.Path(directory or pathlib.Path(__file__).parent)
        self.config = json.loads((self.directory / "config.json").read_text("utf-8"))
        if self.config["program"] is None:
            raise SystemExit(f"{self.directory} was exported without a program")
        program = self.config["program"]
        platform = jax.default_backend()
        if platform not in program["platforms"]:
            raise SystemExit(
                f"the program is for {', '.join(program['platforms'])} and JAX runs on {platform}; "
                "set JAX_PLATFORMS, or export again with platforms"
            )
        serialized = (self.directory / program["file"]).read_bytes()
        self._call = jax.jit(jax.export.deserialize(bytearray(serialized)).call)
        self._parameters = jax.device_put(read_parameters(self.directory))

    def __call__(self, sentences):
        """The translation of each sentence; longer ones than the model takes are cut."""
        source, target = self._vocabulary("inputs"), self._vocabulary("targets")
        rows = self.translate_tokens([[*source.encode(text), EOS_ID] for text in sentences])
        # A model's table may have more rows than the vocabulary has pieces.
        size, unknown = target.get_piece_size(), target.unk_id()
        return [target.decode([t if t < size else unknown for t in row[0]]) for row in rows]

    def translate_tokens(self, sentences):
        """Tokens, score, and whether it was cut, for each list of source tokens."""
        program, found = self.config["program"], []
        size, length = program["batch_size"], self.config["lengths"]["inputs"]
        for start in range(0, len(sentences), size):
            rows = sentences[start : start + size]
            source = np.full((size, length), PAD_ID, np.int32)
            for row, tokens in zip(source, rows, strict=False):
                tokens = tokens if len(tokens) <= length else [*tokens[: length - 1], EOS_ID]
                row[: len(tokens)] = tokens
            numbers = np.arange(start, start + size, dtype=np.uint32)
            results = jax.device_get(self._call(self._parameters, source, numbers))
            for tokens, score, cut in list(zip(*results, strict=True))[: len(rows)]:
                found.append(([int(t) for t in tokens if t > EOS_ID], float(score), bool(cut)))
        return found

    def _vocabulary(self, side):
        import sentencepiece

        if not (name := self.config["vocabularies"].get(side)):
            raise SystemExit(f"the export has no SentencePiece model for {side}; give tokens")
        return sentencepiece.SentencePieceProcessor(model_file=str(self.directory / name))


def read_parameters(directory):
    """All tensors of the safetensors files of a directory, by name, from their plain format."""
    found = {}
    for path in sorted(directory.glob("*.safetensors")):
        data = np.memmap(path, np.uint8, "r")
        start = 8 + int(data[:8].view(np.uint64)[0])
        for name, tensor in json.loads(bytes(data[8:start])).items():
            if name == "__metadata__":
                continue
            first, last = tensor["data_offsets"]
            kind = jax.numpy.bfloat16 if tensor["dtype"] == "BF16" else DTYPES[tensor["dtype"]]
            values = data[start + first : start + last].view(kind)
            found[name] = values.reshape(tensor["shape"])
    return found


def main():
    """Lines from standard input to standard output."""
    sentences = [line.rstrip("\n") for line in sys.stdin]
    for translation in Translator()(sentences):
        print(translation)


if __name__ == "__main__":
    main()
