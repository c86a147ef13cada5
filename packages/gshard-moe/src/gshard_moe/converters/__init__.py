"""Sparse blocks of Hugging Face's `transformers` 4.46.3 to MoELayer and back, without importing it.

Where the blocks differ from a MoELayer with the converted settings (S tokens of a group, E experts,
p probabilities, g = p over the sum of the two):

| | NLLB-MoE | Switch Transformers | MoELayer |
|---|---|---|---|
| group | the whole batch | a sequence | as you group |
| slots | expert_capacity or 2 ceil(S/E) | expert_capacity | these, given group_size |
| slots at evaluation | ceil(share S), kept for training | expert_capacity | these |
| who gets them | place, or surest first | place | place |
| weights | g, or 1 if the other is dropped | p | g; p |
| a token all dropped | 0 | p times the token | 0 |
| second expert | best, coin, or Gumbel noise | - | best or coin |
| coin | 2 p2 > u, then weighs p2 | - | 2 g2 > u, weighs g2 |
| padding | no slot, output 0 | like others | by mask: no slot, output 0 |
| jitter | - | of router and experts | of the router |
| dropout | in and after experts | in experts | none |
| router's bias | optional | optional | none: refused |

What makes evaluation differ is refused unless accepted; reports say it, and what differs in
training.
"""

from gshard_moe.converters.converted import ConversionReport as ConversionReport
from gshard_moe.converters.converted import Converted as Converted
from gshard_moe.converters.converted import Mapped as Mapped
from gshard_moe.converters.nllb_moe import from_nllb_moe as from_nllb_moe
from gshard_moe.converters.nllb_moe import to_nllb_moe as to_nllb_moe
from gshard_moe.converters.switch_transformers import (
    from_switch_transformers as from_switch_transformers,
)
from gshard_moe.converters.switch_transformers import (
    to_switch_transformers as to_switch_transformers,
)
