r"""The layouts of parallel corpora as people download them: one table, read by `parts`.

A form is a regular expression for a file's path below the input folder (without `.gz` and the
like), a reader and the columns it takes. Named groups of the expression:

- `side`: the language of a file that has one side; files that differ in `side` and `role` alone
  are the sides of one text, line by line;
- `a`, `b`: the pair that a path names, in the order of the columns; `code`: the language of a file
  whose second column is English;
- `split`, `role`.
"""

import dataclasses
import re

SPLITS = {
    "train": "train",
    "training": "train",
    "dev": "validation",
    "valid": "validation",
    "validation": "validation",
    "val": "validation",
    "test": "test",
    "tst": "test",
    "devtest": "test",
    "eval": "test",
    "newstest": "test",
    "newsdev": "validation",
}
SPLIT_WORDS = "|".join(sorted(SPLITS, key=len, reverse=True))
_CODE = rf"(?!(?:{SPLIT_WORDS})\b)[A-Za-z]{{2,3}}(?:[_@][A-Za-z0-9]{{2,8}})*"
_ANY_CODE = rf"(?!(?:{SPLIT_WORDS})\b)[A-Za-z]{{2,3}}(?:[-_@][A-Za-z0-9]{{2,8}})*"
_FLORES = r"[a-z]{3}_[A-Z][a-z]{3}(?:_[a-z0-9]+)?"
_PAIR = rf"(?P<a>{_CODE})-(?P<b>{_CODE})"
_WMT_NAME = (
    r"(?:commoncrawl|CommonCrawl|europarl|news-commentary|paracrawl|ParaCrawl|undoc|wikititles"
    r"|WikiMatrix|wikimatrix)[\w.-]*?"
)
# What lies beside text (OPUS, WMT): identifiers, scores, notes.
_NO_SIDES = "ids|idx|xml|md|txt|log|py|csv|tsv|tmx|sgm|zip|pdf|doc|bib|cfg|ini|yml"
_NO_TEXT = r"(?:readme|licen[cs]e|copying|changelog)(?:[._-].*)?"
_UNKNOWN = "unknown"


@dataclasses.dataclass(frozen=True)
class Form:
    """One form of a layout's files.

    Attributes:
        pattern: for the path below the input folder; anything may come before it.
        reader: how a file is read: lines, sgm, tsv, jsonl, parquet or matrix.
        columns: of tsv (numbers from 0) or one-sided jsonl and parquet (the name).
        split: what files are that do not name their split.
        one_per_language: further files of a language (another region's) are left out.
        detects: whether such a file tells the layout from others.
        any_name: whether the group `code` takes names that may have nothing to do with a language.
    """

    pattern: str
    reader: str
    columns: tuple[int | str, ...] = ()
    split: str = "train"
    one_per_language: bool = False
    detects: bool = True
    any_name: bool = False

    def match(self, name: str) -> re.Match[str] | None:
        """The match of a file's name, or None."""
        return re.fullmatch(rf"(?:.*/)?{self.pattern}", name)


@dataclasses.dataclass(frozen=True)
class Layout:
    """A layout: what it is, its forms, the licence and where that is stated."""

    kind: str
    what: str
    forms: tuple[Form, ...]
    licence: str = _UNKNOWN
    licence_source: str = "not stated by the layout; give --licence"
    general: bool = False
    monolingual: str = ""


def _general(kind: str, what: str) -> Layout:
    """A layout of files with both sides, whatever their names, as long as they have a code."""
    split = rf"(?P<split>{SPLIT_WORDS})"
    shard = r"(?:-\d+-of-\d+)?"
    forms = (
        rf"(?:[^/]*[._-])?{_PAIR}(?:[._-]{split}{shard})?\.{kind}",
        rf"(?P<code>{_ANY_CODE})(?:[.]{split}{shard})?\.{kind}",
        rf"{split}[._-](?P<code>{_ANY_CODE})\.{kind}",
        rf"{_PAIR}/[^/]*\.{kind}",
        rf"(?P<code>{_ANY_CODE})/[^/]*\.{kind}",
    )
    any_name = rf"(?P<code>[^/]+?)(?:[.]{split}{shard})?\.{kind}"
    columns = (0, 1) if kind == "tsv" else ()
    named = tuple(Form(pattern, kind, columns) for pattern in forms)
    other = Form(any_name, kind, columns, detects=False, any_name=True)
    return Layout(kind, what, (*named, other), general=True)


# Licences are those that the named publisher states; see the manifest of what was prepared.
LAYOUTS = (
    Layout(
        "opus-100",
        "OPUS-100 (Zhang et al. 2020), as unpacked or as parquet from the hub",
        (
            Form(rf"{_PAIR}/opus\.(?P=a)-(?P=b)-(?P<split>train|dev|test)\.(?P<side>{_CODE})",
                 "lines"),
            Form(rf"{_PAIR}/(?P<split>train|validation|test)-\d+-of-\d+\.parquet", "parquet",
                 detects=False),
        ),
        "unknown: sampled from OPUS, whose collections have licences of their own",
        "the data card of Helsinki-NLP/opus-100 says 'unknown'",
    ),
    Layout(
        "nllb",
        "NLLB mined bitext (allenai/nllb): xxx_Yyyy-eng_Latn.gz",
        (Form(rf"(?P<a>{_FLORES})-(?P<b>{_FLORES})(?:\.tsv)?", "tsv", (0, 1)),),
        "ODC-By 1.0",
        "the data card of allenai/nllb; texts keep the terms of their web pages",
    ),
    Layout(
        "flores-200",
        "FLORES-200: dev/xxx_Yyyy.dev, devtest/xxx_Yyyy.devtest",
        (Form(rf"(?P<split>dev|devtest)/(?P<side>{_FLORES})\.(?P=split)", "lines",
              one_per_language=True),),
        "CC BY-SA 4.0",
        "README of facebookresearch/flores; do not publish the text anew as plain text",
    ),
    Layout(
        "flores-plus",
        "FLORES+ (openlanguagedata/flores_plus): dev/dev.xxx_Yyyy, or parquet from the hub",
        (
            Form(rf"(?P<split>dev|devtest)/(?P=split)\.(?P<side>{_FLORES})", "lines",
                 one_per_language=True),
            Form(rf"(?P<split>dev|devtest)/(?P<side>{_FLORES})\.parquet", "parquet", ("text",),
                 one_per_language=True),
            Form(rf"(?P<split>dev|devtest)/(?P<side>{_FLORES})\.jsonl", "jsonl", ("text",),
                 one_per_language=True),
        ),
        "CC BY-SA 4.0",
        "the data card of openlanguagedata/flores_plus; do not publish it anew as plain text",
    ),
    Layout(
        "ntrex-128",
        "NTREX-128: newstest2019-src.eng.txt, newstest2019-ref.xxx.txt",
        (Form(r"newstest2019-(?P<role>src|ref|ref-2)\.(?P<side>[a-z]{3}(?:-[A-Za-z]+)?)\.txt",
              "lines", split="test", one_per_language=True),),
        "CC BY-SA 4.0",
        "LICENSE of MicrosoftTranslator/NTREX",
    ),
    Layout(
        "ted",
        "TED talks (neulab/word-embeddings-for-nmt): all_talks_{train,dev,test}.tsv",
        (Form(r"all_talks_(?P<split>train|dev|test)\.tsv", "matrix"),),
        "CC BY-NC-ND (version 3.0 by the terms of TED Translators)",
        "the terms and conditions of TED Translators on ted.com",
    ),
    Layout(
        "tatoeba-challenge",
        "Tatoeba Challenge: xxx-eng/{train,dev,test}.{src,trg}",
        (Form(rf"{_PAIR}/(?P<split>train|dev|test)\.(?P<side>src|trg)", "lines"),),
        "CC BY-NC-SA 4.0",
        "README of Helsinki-NLP/Tatoeba-Challenge",
    ),
    Layout(
        "wmt",
        "WMT news: NAME.xx-en.{xx,en}, NAME.xx-en.tsv, newstestYYYY-xxen-{src,ref}.xx.sgm",
        (
            Form(rf"(?P<split>news(?:test|dev)\d{{4}})-(?P<a>[a-z]{{2}})(?P<b>en)-"
                 rf"(?P<role>src|ref)\.(?P<side>{_CODE})\.sgm", "sgm"),
            Form(rf"(?P<split>news(?:test|dev)\d{{4}})-(?P<a>[a-z]{{2}})(?P<b>en)-"
                 rf"(?P<role>src|ref)\.(?P<side>{_CODE})", "lines"),
            Form(rf"(?P<split>news(?:test|dev)\d{{4}})-(?P<a>en)(?P<b>[a-z]{{2}})-"
                 rf"(?P<role>src|ref)\.(?P<side>{_CODE})\.sgm", "sgm"),
            Form(rf"(?P<split>news(?:test|dev)\d{{4}})-(?P<a>en)(?P<b>[a-z]{{2}})-"
                 rf"(?P<role>src|ref)\.(?P<side>{_CODE})", "lines"),
            Form(rf"(?P<split>news(?:test|dev)\d{{4}})-(?P<role>src|ref)\.(?P<side>{_CODE})\.sgm",
                 "sgm", one_per_language=True),
            Form(rf"(?P<split>news(?:test|dev)\d{{4}})\.(?P<side>{_CODE})", "lines",
                 detects=False),
            Form(rf"{_WMT_NAME}\.{_PAIR}\.tsv", "tsv", (0, 1)),
            Form(rf"{_WMT_NAME}\.{_PAIR}\.(?P<side>{_CODE})", "lines"),
        ),
        "mixed: each collection has its own",
        "the page of each WMT translation task",
    ),
    Layout(
        "madlad-400",
        "MADLAD-400 documents",
        (Form(r"(?P<code>[\w-]+)/(?P=code)_(?:clean|noisy)_\d+\.jsonl", "jsonl"),),
        monolingual="MADLAD-400 is monolingual: documents of one language without a translation;"
        " its parallel training data were not published. For pairs into English use opus-100,"
        " nllb or debian",
    ),
    Layout(
        "moses",
        "two files, line by line: NAME.xx and NAME.en (also NAME.xx-en.xx, xx.txt)",
        (
            Form(rf"(?!(?i:{_NO_TEXT})$)[^/]+?[._-](?!(?:{_NO_SIDES})$)(?P<side>{_ANY_CODE})"
                 r"(?:\.txt)?", "lines"),
            Form(rf"(?P<side>{_ANY_CODE})\.txt", "lines"),
        ),
        general=True,
    ),
    _general("tsv", "columns source and English: xx.tsv, xx.train.tsv, NAME.xx-en.tsv, xx/*.tsv"),
    _general("jsonl", "objects with source and target, or a translation of two languages"),
    _general("parquet", "columns source and target, or a translation of two languages"),
)  # fmt: skip

BY_KIND = {layout.kind: layout for layout in LAYOUTS}
