"""Compiled kernels on plain arrays, independent of MDPs."""

import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path


def set_cache_folder(package: Path, environment: "os._Environ[str] | dict[str, str]") -> None:
    """Set numba's cache to a temporary folder if neither the package folder nor the home folder is writable.

    Without a cache folder, importing a kernel raises an error. Numba executes the cached code, so the temporary folder
    must belong to the user; if it does not, the environment is left unchanged.

    Examples
    --------
    >>> environment = {}
    >>> set_cache_folder(Path(tempfile.mkdtemp()), environment)
    >>> environment
    {}
    """
    if environment.get("NUMBA_CACHE_DIR") or _is_writable(package):
        return
    with suppress(RuntimeError):  # the user of a container may have no home
        home = Path(environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME") or "~").expanduser() / ".cache")
        if _is_writable(home / "numba"):
            return
    owner = os.getuid() if hasattr(os, "getuid") else 0
    folder = Path(tempfile.gettempdir()) / f"limiirl-kernels-{owner}"
    with suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
        if folder.is_symlink() or (hasattr(os, "getuid") and (status.st_uid != owner or status.st_mode & 0o022)):
            return
        environment["NUMBA_CACHE_DIR"] = str(folder)
        if "numba" in sys.modules:
            sys.modules["numba"].config.CACHE_DIR = str(folder)


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


set_cache_folder(Path(__file__).parent, os.environ)
