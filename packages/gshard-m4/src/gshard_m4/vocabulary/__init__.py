"""SentencePiece vocabularies: learnt, used, and judged by language.

Importing this is light; sentencepiece is imported where a model is learnt or read.
"""

from gshard_m4.vocabulary.model import EOS as EOS
from gshard_m4.vocabulary.model import PAD as PAD
from gshard_m4.vocabulary.model import UNK as UNK
from gshard_m4.vocabulary.model import Vocabulary as Vocabulary
from gshard_m4.vocabulary.model import normalize as normalize
from gshard_m4.vocabulary.model import tag as tag
from gshard_m4.vocabulary.training import train as train
