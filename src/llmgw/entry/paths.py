"""Decides where a role keeps what others must find: sockets, tokens, settings of its children.

Law: a Unix socket's path must fit the kernel's 108 bytes, so that a deep state directory gets a short
stand-in, private to its owner and the same for every process that asks.
"""

import hashlib
import os
import tempfile
from pathlib import Path

SOCKET_PATH_MAX = 100  # of the kernel's 108, leaving room for the temporary name while it is replaced


def watch_socket_path(state_dir: Path) -> Path:
    """Where routers on this machine find the control plane of `state_dir`."""
    plain = state_dir.absolute() / "watch.sock"
    if len(os.fsencode(plain)) <= SOCKET_PATH_MAX:
        return plain
    digest = hashlib.sha256(os.fsencode(plain)).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"llmgw-{os.getuid()}-{digest}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid() or folder.is_symlink():
        raise PermissionError(13, "belongs to somebody else", str(folder))
    return folder / "watch.sock"


def admin_token_path(state_dir: Path) -> Path:
    """The admin token's file (S2)."""
    return state_dir / "admin-token"
