"""A sweep's results on disk: parts that appear whole, a manifest that tells the truth, a lock that dies with its owner.

`fastsim.sweeps.store.schema` (it needs polars) says what a row is.
"""

from fastsim.sweeps.store.folder import SweepFolder, part_path, write_part
from fastsim.sweeps.store.manifest import Manifest, PartRecord, read_manifest

__all__ = ["Manifest", "PartRecord", "SweepFolder", "part_path", "read_manifest", "write_part"]
