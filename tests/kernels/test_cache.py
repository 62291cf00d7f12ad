"""The folder of compiled kernels in a read-only installation."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from limiirl.kernels import set_cache_folder

# Not writable, even for root.
READ_ONLY = Path("/proc")
pytestmark = pytest.mark.skipif(not READ_ONLY.is_dir(), reason="needs a folder that is not writable")


def test_a_temporary_folder_is_used_only_if_no_other_is_writable(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for package, extra in [
        (tmp_path, {"HOME": str(READ_ONLY)}),
        (READ_ONLY, {"HOME": str(tmp_path / "home")}),
        (READ_ONLY, {"HOME": str(READ_ONLY), "XDG_CACHE_HOME": str(tmp_path / "cache")}),
        (READ_ONLY, {"HOME": str(READ_ONLY), "NUMBA_CACHE_DIR": "mine"}),
    ]:
        environment = dict(extra)
        set_cache_folder(package, environment)
        assert environment == extra
    for home in ("~no such user", str(READ_ONLY)):
        environment = {"HOME": home}
        set_cache_folder(READ_ONLY, environment)
        folder = Path(environment["NUMBA_CACHE_DIR"])
        assert folder.parent == tmp_path
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)  # others may have written there
    environment = {"HOME": str(READ_ONLY)}
    set_cache_folder(READ_ONLY, environment)
    assert "NUMBA_CACHE_DIR" not in environment


IMPORT = """
import os, tempfile
temporary = tempfile.TemporaryFile
def create(dir):
    if str(dir).endswith("kernels"):
        raise OSError("read-only")
    return temporary(dir=dir)
tempfile.TemporaryFile = create
from numba.core import caching
def refuse(self):
    raise OSError("read-only")
for name in dir(caching):
    if "InTree" in name:  # the name depends on the version of numba
        getattr(caching, name).ensure_cache_path = refuse
import limiirl.kernels.sequences
print(os.environ["NUMBA_CACHE_DIR"])
"""


@pytest.mark.slow
def test_kernels_are_imported_in_a_read_only_installation(tmp_path):
    environment = {
        name: value for name, value in os.environ.items() if name not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")
    }
    environment |= {"PYTHONPATH": os.pathsep.join(sys.path), "HOME": "/proc/nowhere", "TMPDIR": str(tmp_path)}
    run = subprocess.run([sys.executable, "-c", IMPORT], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.startswith(str(tmp_path))
