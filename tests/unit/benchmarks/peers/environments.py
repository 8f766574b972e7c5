"""Environments as an earlier run would have left them, so that a test needs no network."""

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.peers.catalogue import Peer


def existing(place: Path, peer: Peer) -> Path:
    """An environment with nothing in it, stamped with the peer's requirements; its folder."""
    folder = place / peer.environment
    # Without pip, which takes seconds to install.
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    (folder / "installed.json").write_text(json.dumps([peer.requirements, peer.npm, peer.python]))
    return folder
