"""Parallel text of a hundred languages out of packages of the Debian archive.

Free programs carry their translations: 745 MB of packages hold millions of strings and sentences
with their English. `fetch` downloads them with apt, which needs no installation and no root, reads
the translations out of the archives and leaves a folder with a file a language. The text has the
licences of the programs (GPL, LGPL, MPL, CC BY-SA and others, named per package in `debian.json`):
for training and measuring at home; none of it is in this package.
"""

from gshard_m4.debian.fetching import fetch as fetch
from gshard_m4.debian.merging import sources as sources
