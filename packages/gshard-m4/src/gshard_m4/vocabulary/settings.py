"""How the vocabularies of a prepared directory are learnt."""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """How vocabularies are learnt.

    Attributes:
        source_size: pieces for all source languages together (the paper: 64,000).
        target_size: pieces for English (the paper: 32,000).
        temperature: T of the rates at which languages share the sentences.
        sentences: about how many are learnt from, for each of the two.
        character_coverage: each language's most frequent characters that make up this share of its
            text get a piece. It is a share of the language's own text: of all text together, rare
            characters of one language are nothing, and Chinese would lose one token in twenty.
        byte_fallback: other characters become bytes rather than unknown.
        tags: a piece `<2xx>` for every source language.
        languages: any codes of the languages to learn from; none for all.
    """

    source_size: int = 64_000
    target_size: int = 32_000
    temperature: float = 5.0
    sentences: int = 500_000
    character_coverage: float = 0.9999
    byte_fallback: bool = False
    tags: bool = False
    languages: tuple[str, ...] = ()
