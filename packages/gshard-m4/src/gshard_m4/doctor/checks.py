"""What is looked for in a directory: one table. A finding is one check in one language and split.

A check is a fault where it changes what is trained on or what scores mean, and a note where it is
only good to know; the exit code of `gshard-m4 doctor` counts faults.
"""

import dataclasses

from gshard_m4.preparing.cleaning import REASONS, REPAIRS

FEWEST_TRAINING_ROWS = 1_000
FEWEST_HELD_OUT_ROWS = 50
LEAST_SCRIPT_SHARE = 0.5

_PREPARE = "prepare the data again: gshard-m4 prepare removes such rows and counts them"
_KEPT = (
    "nothing, or prepare again with --clean-held-out: scores on sets that were published compare"
    " only while they are whole"
)
_DOWNLOAD = "copy the directory again from where it was made, or prepare it again"
_VOCABULARY = "see gshard-m4 vocabulary --help; --force makes them anew"
_RAW = "download the files again, or mend them; gshard-m4 prepare refuses them as they are"


@dataclasses.dataclass(frozen=True)
class Check:
    """One thing that can be wrong.

    Attributes:
        title: what it is, in a line.
        advice: what to do about it.
        advice_held_out: the same for rows of validation and test sets, where it differs.
        fault: whether it is one, rather than a note.
        fault_held_out: the same for rows of validation and test sets, which stay as they were
            published.
        fault_above: the share of rows above which it is a fault, and up to which a note.
    """

    title: str
    advice: str
    advice_held_out: str = ""
    fault: bool = True
    fault_held_out: bool = True
    fault_above: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """What a check found.

    Attributes:
        check: its key in `CHECKS`.
        language: code, '' for the whole directory.
        split: '' for all.
        rows: how many rows it is about, 0 where it is about none.
        of: how many were looked at.
        exact: how many of the rows are so to the last character, for checks that compare texts
            without case, spaces and punctuation; None for others.
        detail: what was found, in words.
        example: the first of the rows: its number and text.
    """

    check: str
    language: str = ""
    split: str = ""
    rows: int = 0
    of: int = 0
    exact: int | None = None
    detail: str = ""
    example: str = ""

    @property
    def is_held_out(self) -> bool:
        """Whether it is about a validation or test set."""
        return self.split in ("validation", "test")

    @property
    def advice(self) -> str:
        """What to do."""
        check = CHECKS[self.check]
        return (self.is_held_out and check.advice_held_out) or check.advice

    @property
    def is_fault(self) -> bool:
        """Whether it is a fault rather than a note."""
        check = CHECKS[self.check]
        is_one = check.fault_held_out if self.is_held_out else check.fault
        return is_one and (not self.rows or self.rows > check.fault_above * self.of)


def _row_checks() -> dict[str, Check]:
    """The reasons and repairs of `gshard-m4 prepare`, for rows that are there all the same."""
    repaired = {
        REPAIRS[0]: "HTML tags or entities are left in the text",
        REPAIRS[1]: "zero-width spaces, direction marks, soft hyphens or byte order marks",
        REPAIRS[2]: "the text is not in NFC, or has other spaces than single plain ones",
    }
    mend = "prepare the data again: gshard-m4 prepare mends such rows"
    checks = {
        reason: Check(what, _PREPARE, _KEPT, fault_held_out=False)
        for reason, what in REASONS.items()
    }
    checks |= {
        name: Check(what, mend, _KEPT, fault_held_out=False) for name, what in repaired.items()
    }
    return checks


CHECKS: dict[str, Check] = {
    # The directory.
    "file": Check("a file is missing or damaged", _DOWNLOAD),
    "manifest": Check("the manifest contradicts itself or the table of languages", _DOWNLOAD),
    "unlisted": Check("files that the manifest does not know", "remove them", fault=False),
    "unfinished run": Check(
        "preparing it anew has not ended; what is here is of the run before",
        "give the same gshard-m4 prepare again, and it goes on",
        fault=False,
    ),
    "no training text": Check("a language has no training rows", "", fault=False),
    "no validation set": Check(
        "nothing to choose settings by", "give --validation-size to gshard-m4 prepare"
    ),
    "no test set": Check("nothing to score by", "give --test-size to gshard-m4 prepare"),
    "little training text": Check(
        f"fewer than {FEWEST_TRAINING_ROWS:,} training rows", "add text, or expect little",
        fault=False,
    ),
    "small held-out set": Check(
        f"fewer than {FEWEST_HELD_OUT_ROWS} rows: scores of it move by chance",
        "report another test set beside it, such as NTREX-128",
        fault_held_out=False,
    ),
    # Rows.
    **_row_checks(),
    "in validation and test": Check(
        "a sentence is in the validation set and in the test set: settings are chosen on it",
        "remove it from the validation set, or take another; a fault above 5% of the set",
        fault_above=0.05,
    ),
    "script share": Check(
        f"less than {LEAST_SCRIPT_SHARE:.0%} of a language's letters are in its script",
        "check the code: text in another script is a language of its own, such as zh_Hant",
    ),
    # Vocabularies.
    "no vocabulary": Check("there is none yet", "gshard-m4 vocabulary makes it", fault=False),
    "vocabulary": Check("a vocabulary cannot be used", _VOCABULARY),
    "vocabulary fit": Check("a vocabulary fits a language badly", _VOCABULARY, fault=False),
    # Directories as downloaded.
    "layout": Check("the layout of the files", "", fault=False),
    "unknown language": Check(
        "a file's code is not known",
        "rename the file, or let gshard-m4 prepare --skip-unknown leave it out",
    ),
    "left out": Check("gshard-m4 prepare would not read it", "", fault=False),
    "would be removed": Check(
        "training rows that gshard-m4 prepare would remove, duplicates apart; a fault above 90%",
        "look at some of them: is it the language, are the columns the right ones?",
        fault_above=0.9,
    ),
    "damaged input": Check("sides, encoding, columns or direction are wrong", _RAW),
}  # fmt: skip
