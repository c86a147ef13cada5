"""What the compiler made of the annotations.

A claim about sharding is a claim about the compiled program: `expect_collectives` makes it a test,
`inspect` a report that people read.
"""

from gshard_annotate.inspector.collectives import Collective as Collective
from gshard_annotate.inspector.collectives import collectives as collectives
from gshard_annotate.inspector.collectives import expect_collectives as expect_collectives
