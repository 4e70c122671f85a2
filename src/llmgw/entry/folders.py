"""Decides where the servers of this machine keep their data, and how others on it find them (N0).

Law: the folder of `llmgw up` follows the XDG rules; a system-wide server's is /var/lib/llmgw.
"""

from collections.abc import Mapping
from pathlib import Path

SYSTEM_DATA = Path("/var/lib/llmgw")
ADMIN_TOKEN = "admin-token"
ADMIN_ADDRESS = "admin-address"  # where the admin listener of this state folder is: host:port


def default_data_folder(environ: Mapping[str, str]) -> Path:
    """Where `llmgw up` keeps everything unless told otherwise."""
    given = Path(environ.get("XDG_DATA_HOME", ""))
    # The rules say that a relative path there is to be ignored.
    base = given if given.is_absolute() else Path.home() / ".local" / "share"
    return base / "llmgw"
