"""Prepared text on disk: compressed shards that are read a row at a time, and their manifest."""

from gshard_m4.prepared.directory import Pairs as Pairs
from gshard_m4.prepared.directory import Prepared as Prepared
from gshard_m4.prepared.directory import open_prepared as open_prepared
from gshard_m4.prepared.directory import read_manifest as read_manifest
from gshard_m4.prepared.manifest import MANIFEST as MANIFEST
from gshard_m4.prepared.manifest import LanguageEntry as LanguageEntry
from gshard_m4.prepared.manifest import Manifest as Manifest
from gshard_m4.prepared.manifest import ShardEntry as ShardEntry
from gshard_m4.prepared.manifest import SourceEntry as SourceEntry
from gshard_m4.prepared.manifest import SplitEntry as SplitEntry
from gshard_m4.prepared.manifest import parse_manifest as parse_manifest
from gshard_m4.prepared.manifest import shard_name as shard_name
from gshard_m4.prepared.shard import Shard as Shard
from gshard_m4.prepared.small import write_prepared as write_prepared
from gshard_m4.prepared.writer import ShardWriter as ShardWriter
