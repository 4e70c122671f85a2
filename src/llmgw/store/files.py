"""Decides where a database file may lie, and makes it readable by its owner alone.

Laws: a filesystem shared between machines is refused (SQLite's locks do not hold there, two servers would
both write); a file that exists keeps its contents, whatever it is.
"""

import os
from pathlib import Path

from llmgw.ports import StoreUnavailable

NETWORK_FILESYSTEMS = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "ceph", "lustre", "gpfs", "beegfs"),
        *("glusterfs", "orangefs", "fuse.glusterfs", "fuse.sshfs", "fuse.s3fs", "fuse.juicefs", "fuse.ceph"),
    }
)
MOUNTS = Path("/proc/self/mounts")


def filesystem_kind(path: Path, mounts: str) -> str | None:
    """The kind of filesystem a path lies on, by a table of mounts as Linux prints it."""
    longest, kind = -1, None
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:
            continue
        mount = fields[1].replace("\\040", " ")
        # Later mounts cover earlier ones at the same place.
        if path.is_relative_to(mount) and len(mount) >= longest:
            longest, kind = len(mount), fields[2]
    return kind


def make_private_file(path: Path) -> None:
    """Make the file (0600) when there is none. Raises `StoreUnavailable` with what the system says."""
    kind = filesystem_kind(path.absolute().parent.resolve(), _mounts())
    if kind in NETWORK_FILESYSTEMS:
        raise StoreUnavailable(
            f"{path} lies on {kind}, where SQLite's locks do not hold; put the store on a local disk"
        )
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise StoreUnavailable(f"cannot open {path}: {error.strerror}") from None


def _mounts() -> str:
    try:
        return MOUNTS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""  # unknown excludes nothing
