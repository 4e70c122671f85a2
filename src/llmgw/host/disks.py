"""Reads filesystems and finds weight files; every call may hang on a network disk, so none is on the loop.

Laws: one entry a filesystem, not a directory (I7); shared or local is judged by its type, an unknown type
is local; a missing directory is skipped, not "no space"; a scan is bounded.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from llmgw.core.inventory import Filesystem, WeightFile

_SHARED = frozenset(
    {
        *(
            "nfs",
            "nfs4",
            "cifs",
            "smb3",
            "smbfs",
            "ceph",
            "glusterfs",
            "lustre",
            "gpfs",
            "beegfs",
            "beegfs_nodev",
        ),
        *("wekafs", "pvfs2", "orangefs", "afs", "9p", "virtiofs", "ocfs2", "gfs2", "juicefs"),
        *(
            "fuse.sshfs",
            "fuse.ceph",
            "fuse.glusterfs",
            "fuse.juicefs",
            "fuse.gcsfuse",
            "fuse.s3fs",
            "fuse.rclone",
        ),
        *("fuse.mount-s3", "fuse.moosefs", "fuse.seaweedfs"),
    }
)
_OCTAL = re.compile(r"\\([0-7]{3})")  # how the kernel writes spaces in paths
_WEIGHTS = (".gguf", ".safetensors")
FILES_MAX = 10_000  # of one node; a cache of 1,000 models has as many
DEPTH_MAX = 8  # a Hugging Face cache is 4 deep


class Mount(msgspec.Struct, frozen=True):
    """A mounted filesystem: where, and of what type."""

    path: str
    kind: str


def mounts_of(folders: Iterable[Path], table: Path = Path("/proc/self/mounts")) -> tuple[Mount, ...]:
    """The filesystems these directories are on, each once, by the path given; reads no disk."""
    mounted = []
    for line in table.read_text(errors="replace").splitlines():
        fields = line.split(" ")
        mounted.append(Mount(_OCTAL.sub(lambda code: chr(int(code[1], 8)), fields[1]), fields[2]))
    found: dict[str, Mount] = {}
    for folder in folders:
        on = [mount for mount in mounted if _under(str(folder), mount.path)]
        if on:
            deepest = max(reversed(on), key=lambda mount: len(mount.path))  # a later mount hides an earlier
            found[deepest.path] = deepest
    return tuple(found.values())


def _under(path: str, mount: str) -> bool:
    return path == mount or path.startswith(mount if mount.endswith("/") else f"{mount}/")


def filesystem(mount: Mount) -> Filesystem:
    """Its free and total bytes; free is what an ordinary user may still write. Raises `OSError`."""
    found = os.statvfs(mount.path)
    return Filesystem(
        mount.path,
        total_bytes=found.f_blocks * found.f_frsize,
        free_bytes=found.f_bavail * found.f_frsize,
        shared=mount.kind in _SHARED,
    )


def weight_files(folders: Iterable[Path]) -> tuple[WeightFile, ...]:
    """Weight files under directories, by path; links are not followed out, but what they name counts."""
    found: dict[str, WeightFile] = {}
    for folder in folders:
        for path, size in _walk(str(folder), DEPTH_MAX):
            if len(found) >= FILES_MAX:
                break
            found[path] = WeightFile(path, size)
    return tuple(found[path] for path in sorted(found))


def _walk(folder: str, depth: int) -> Iterable[tuple[str, int]]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return  # missing, or not ours to read
    for entry in entries:
        try:
            if entry.is_dir(follow_symlinks=False):
                if depth > 0:
                    yield from _walk(entry.path, depth - 1)
            elif entry.name.lower().endswith(_WEIGHTS) and entry.is_file():
                yield entry.path, entry.stat().st_size
        except OSError:
            continue  # gone meanwhile, or a link to nowhere
