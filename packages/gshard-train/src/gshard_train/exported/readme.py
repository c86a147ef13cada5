"""The page that lies in an export and says how to use it."""

from collections.abc import Mapping
from typing import Any

_PARAMETERS = """# An exported translation model

Written by gshard-train from checkpoint {checkpoint_step}: {parameters:,} parameters, layers
{layers}.

| file | what |
|---|---|
| `model*.safetensors` | the parameters by name |
| `config.json` | sizes, lengths, search |
"""
_VOCABULARIES = "| `inputs.model`, `targets.model` | SentencePiece models of source and target |\n"
_PROGRAM = """| `translate.stablehlo` | for {platforms}; {batch_size} sentences a call |
| `translate.py` | reads lines, writes translations; needs jax and sentencepiece alone |

```bash
pip install "jax>={jax}" sentencepiece
python translate.py < sentences.txt > translations.txt
```

Text is tokenised as it is and an end is appended; what a task does to its text before that is to
be done by the caller.
"""


def readme(config: Mapping[str, Any]) -> str:
    """The page for an export with this `config.json`."""
    text = _PARAMETERS.format(**config)
    if config["vocabularies"]:
        text += _VOCABULARIES
    if program := config["program"]:
        platforms = ", ".join(program["platforms"])
        text += _PROGRAM.format(**{**program, "platforms": platforms})
    return text
