"""Importing this registers the sample with seqio: `m4_sample_<language>_en` and `m4_sample`."""

from gshard_m4.sample.corpus import corpus
from gshard_m4.tasks import register

register(corpus())
