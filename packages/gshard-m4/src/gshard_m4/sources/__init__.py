"""Parallel corpora as downloaded: their layouts, files, languages and rows."""

from gshard_m4.sources.codes import resolver as resolver
from gshard_m4.sources.detection import detect as detect
from gshard_m4.sources.detection import kinds_table as kinds_table
from gshard_m4.sources.files import File as File
from gshard_m4.sources.layouts import BY_KIND as BY_KIND
from gshard_m4.sources.layouts import LAYOUTS as LAYOUTS
from gshard_m4.sources.layouts import Form as Form
from gshard_m4.sources.layouts import Layout as Layout
from gshard_m4.sources.parts import Part as Part
from gshard_m4.sources.parts import Scan as Scan
from gshard_m4.sources.readers import rows as rows
from gshard_m4.sources.scanning import scan as scan
