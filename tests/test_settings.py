"""Every setting has a help text, stands in docs/settings.md, and comes from the environment or lithify.toml."""

from __future__ import annotations

import shutil
import tarfile
import types
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import pytest
from pydantic import ValidationError

from lithify import InvalidRequest, Lake, Settings
from lithify.lake.own_settings import accept_settings, change_settings
from lithify.options.table_options import OPTIONS
from lithify.settings import load_settings
from lithify.settings_files import HARMLESS, OPENERS_ONLY, TOLD_ONLY
from support.settings_page import PAGE, made


def test_the_page_says_what_is_declared() -> None:
    assert PAGE.read_text() == made(PAGE.read_text()), "write it anew: python tests/support/settings_page.py"


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_has_a_help_text(name: str) -> None:
    assert (Settings.model_fields[name].description or OPTIONS[name].help).endswith(".")


def test_the_environment_wins_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lithify.toml").write_text('actor = "file"\ncheckpoint_every = 7\n')
    monkeypatch.setenv("LITHIFY_ACTOR", "environment")
    settings = load_settings()
    assert (settings.actor, settings.checkpoint_every) == ("environment", 7)
    assert load_settings(actor="call").actor == "call"


@pytest.mark.parametrize(("name", "value"), [("checkpoint_every", "1"), ("commit_attempts_max", "many")])
def test_a_bad_setting_is_named(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"LITHIFY_{name.upper()}", value)
    with pytest.raises(InvalidRequest, match=f"setting '{name}'.*LITHIFY_{name.upper()}"):
        load_settings()


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError):
        Settings().actor = "somebody"  # type: ignore[misc]


def test_a_misspelled_setting_is_named_with_what_was_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lithify.toml").write_text("polcy_interval_s = 4\n")
    monkeypatch.chdir(tmp_path)

    with pytest.raises(InvalidRequest, match=r"polcy_interval_s.*did you mean 'policy_interval_s'"):
        load_settings()


def test_a_broken_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lithify.toml").write_text("lake = [\n")
    monkeypatch.chdir(tmp_path)

    with pytest.raises(InvalidRequest, match=r"lithify\.toml in this folder is no TOML"):
        load_settings()


def test_tiers_that_are_no_list_are_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lithify.toml").write_text('[tiers]\nname = "hourly"\n')
    monkeypatch.chdir(tmp_path)

    with pytest.raises(InvalidRequest, match=r"write \[\[tiers\]\]"):
        load_settings()


# -- which file may say what


def _is_harmless_by_kind(kind: Any) -> bool:
    """A number, a switch, or one of a few words."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return all(_is_harmless_by_kind(each) for each in get_args(kind) if each is not type(None))
    return origin is Literal or kind in (int, float, bool)


def test_every_setting_that_could_do_harm_is_marked() -> None:
    marked = HARMLESS | set(TOLD_ONLY)
    open_kinds = {n for n, field in Settings.model_fields.items() if not _is_harmless_by_kind(field.annotation)}
    assert open_kinds - marked == set(), "may it stand in a file of the current folder? see settings_files.py"
    assert (marked | OPENERS_ONLY) - set(Settings.model_fields) == set()
    assert not HARMLESS & set(TOLD_ONLY)


VALUES = {
    "allowed_paths": '["/"]',
    "spark_master": '"spark://elsewhere:7077"',
    "spark_remote": '"sc://elsewhere:15002"',
    "spark_conf": '{"spark.driver.extraJavaOptions" = "-javaagent:/tmp/agent.jar"}',
    "s3a": '"packages"',
    "host": '"0.0.0.0"',
    "allowed_hosts": '["evil.example"]',
    "tls_cert": '"cert.pem"',
    "tls_key": '"key.pem"',
    "index_folder": '"/somewhere"',
    "cache_folder": '"/somewhere"',
    "file_mode": '"666"',
    "streams": '{ landing = { source = "/etc", target = "a.b" } }',
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.delenv("LITHIFY_CONFIG", raising=False)
    return tmp_path / "here"


@pytest.mark.parametrize("name", [name for name in TOLD_ONLY if name in Settings.model_fields])
def test_what_can_do_harm_is_not_taken_from_the_current_folder_unless_it_is_told(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "lithify.toml").write_text(f'actor = "file"\n{name} = {VALUES[name]}\n')
    default = Settings.model_fields[name].get_default(call_default_factory=True)

    settings = load_settings()

    assert settings.actor == "file"
    assert getattr(settings, name) == getattr(Settings(), name) == default
    (line,) = [record.getMessage() for record in caplog.records]
    assert name in line
    assert "--config lithify.toml" in line
    told = load_settings(config=folder / "lithify.toml")
    assert getattr(told, name) != default
    monkeypatch.setenv("LITHIFY_CONFIG", str(folder / "lithify.toml"))
    assert getattr(Settings(), name) == getattr(told, name)


@pytest.mark.parametrize("schedule", ['every = "1s"', 'cron = "* * * * *"', 'on = "a.b"'])
def test_a_pipeline_of_the_current_folder_does_not_run_by_itself_unless_it_is_told(
    folder: Path, schedule: str, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "lithify.toml").write_text(
        f'[pipelines.sales]\n{schedule}\n[[pipelines.sales.steps]]\ntable = "a.b"\ntarget = "a.c"\n'
    )
    (sales,) = load_settings().pipelines.values()
    assert sales == {"steps": [{"table": "a.b", "target": "a.c"}]}
    assert f"left out pipelines.sales.{schedule.split(' ')[0]} (it runs by itself)" in caplog.text
    (told,) = load_settings(config=folder / "lithify.toml").pipelines.values()
    assert schedule.split(" ")[0] in told


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]"])
def test_how_many_cores_of_this_machine_work_may_stand_here(folder: Path, master: str) -> None:
    (folder / "lithify.toml").write_text(f'spark_master = "{master}"\n')
    assert load_settings().spark_master == master


@pytest.mark.parametrize("memory", ["1g -XX:OnOutOfMemoryError=date", "1g; date", "lots"])
def test_an_amount_of_memory_is_one(folder: Path, memory: str) -> None:
    (folder / "lithify.toml").write_text(f'spark_driver_memory = "{memory}"\n')
    with pytest.raises(InvalidRequest, match="spark_driver_memory"):
        load_settings()


def test_a_file_that_was_named_replaces_that_of_the_folder(folder: Path) -> None:
    (folder / "lithify.toml").write_text("checkpoint_every = 7\n")
    (folder / "mine.toml").write_text('actor = "named"\n')
    settings = load_settings(config=folder / "mine.toml")
    assert (settings.actor, settings.checkpoint_every) == ("named", 20)
    with pytest.raises(InvalidRequest, match=r"missing\.toml cannot be read"):
        load_settings(config=folder / "missing.toml")


def test_a_lake_brings_settings_of_its_owner(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    lake = folder.parent / "lake"
    Lake(lake).close()
    (lake / "lithify.toml").write_text('checkpoint_every = 9\nallowed_paths = ["/"]\nserver = "http://evil.example"\n')
    (lake / "lithify.toml").chmod(0o644)

    settings = load_settings(of_lake=lake)

    assert settings.checkpoint_every == 9
    assert (settings.allowed_paths, settings.server) == ((), None)
    assert "allowed_paths, server, which a lake cannot say of itself" in caplog.text
    with Lake(lake) as opened:
        assert opened._runtime.settings.checkpoint_every == 9


@pytest.mark.parametrize("file", ["_lithify/lithify.toml", "lithify.toml"])
@pytest.mark.parametrize("name", sorted(set(TOLD_ONLY) - OPENERS_ONLY))
def test_what_can_do_harm_is_not_taken_from_an_unpacked_lake(
    folder: Path, name: str, file: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever unpacks an archive owns all that was in it."""
    sent, lake = folder.parent / "sent", folder.parent / "unpacked" / "sent"
    Lake(sent).close()
    (sent / file).write_text(f"checkpoint_every = 9\n{name} = {VALUES[name]}\n")
    (sent / file).chmod(0o644)
    with tarfile.open(folder.parent / "sent.tar", "w") as archive:
        archive.add(sent, "sent")
    with tarfile.open(folder.parent / "sent.tar") as archive:
        archive.extractall(lake.parent, filter="data")

    settings = load_settings(of_lake=lake)

    default = Settings.model_fields[name].get_default(call_default_factory=True)
    assert (settings.checkpoint_every, getattr(settings, name)) == (9, default)
    assert f"{lake / file}: left out {name} ({TOLD_ONLY[name]})" in caplog.text
    assert f"lithify set --lake {lake} --as-it-is" in caplog.text
    assert getattr(load_settings(config=lake / file), name) != default


def test_a_pipeline_of_an_unpacked_lake_does_not_run_by_itself(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    lake = folder.parent / "lake"
    Lake(lake).close()
    (lake / "lithify.toml").write_text(
        '[pipelines.sales]\nevery = "1s"\n[[pipelines.sales.steps]]\ntable = "a.b"\ntarget = "a.c"\n'
    )
    (lake / "lithify.toml").chmod(0o644)
    (sales,) = load_settings(of_lake=lake).pipelines.values()
    assert sales == {"steps": [{"table": "a.b", "target": "a.c"}]}
    assert "left out pipelines.sales.every (it runs by itself)" in caplog.text


def test_what_this_user_set_counts_until_the_file_is_another(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, conf = folder.parent / "lake", '{"a.b" = "c"}'
    with Lake(path) as lake:
        file = Path(change_settings(lake, {"spark_conf": conf}))
        change_settings(lake, {"checkpoint_every": "9"})
        assert load_settings(of_lake=path).spark_conf == {"a.b": "c"}
        assert "left out" not in caplog.text

        file.write_text(file.read_text().replace('"c"', '"-javaagent:/tmp/agent.jar"'))
        assert load_settings(of_lake=path).spark_conf == {}
        assert f"{file}: left out spark_conf (it can run programs)" in caplog.text

        # A change of something else does not make it ours.
        with pytest.raises(InvalidRequest, match=r"says spark_conf \(it can run programs\): look into it"):
            change_settings(lake, {"checkpoint_every": "8"})
        assert load_settings(of_lake=path).spark_conf == {}
        change_settings(lake, {"checkpoint_every": "8", "spark_conf": conf})
        assert load_settings(of_lake=path).spark_conf == {"a.b": "c"}

        file.write_text(file.read_text().replace('"c"', '"by hand"'))
        assert accept_settings(lake) == {file: ["spark_conf (it can run programs)"]}
        assert load_settings(of_lake=path).spark_conf == {"a.b": "by hand"}


def test_what_was_set_for_a_lake_does_not_count_in_a_copy_of_it(folder: Path) -> None:
    path = folder.parent / "lake"
    with Lake(path) as lake:
        change_settings(lake, {"spark_conf": '{"a.b" = "c"}'})
    shutil.copytree(path, folder.parent / "copy")

    assert load_settings(of_lake=path).spark_conf == {"a.b": "c"}
    assert load_settings(of_lake=folder.parent / "copy").spark_conf == {}


@pytest.mark.parametrize("how", ["group", "world", "link", "owner"])
def test_settings_in_a_lake_that_others_could_have_written_are_left_out(
    folder: Path, how: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = folder.parent / "lake"
    lake.mkdir()
    path = lake / "lithify.toml"
    path.write_text("checkpoint_every = 9\n")
    path.chmod({"group": 0o664, "world": 0o606}.get(how, 0o644))
    if how == "link":
        path.rename(lake / "real.toml")
        path.symlink_to(lake / "real.toml")
    if how == "owner":
        other = path.stat().st_uid + 1
        monkeypatch.setattr("lithify.settings_files.os.geteuid", lambda: other)

    assert load_settings(of_lake=lake).checkpoint_every == 20
    if how != "link":
        assert "belongs to you and nobody else can write to it" in caplog.text


# -- what may change while a process runs


def test_roles_are_read_again(folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    settings = load_settings()
    assert "compact" in settings.roles_now()
    (folder / "lithify.toml").write_text('roles = ["read"]\n')
    assert settings.roles_now() == ("read",)
    (folder / "lithify.toml").write_text("roles = [\n")
    assert settings.roles_now() == settings.roles
    assert "roles stay read,write,compact" in caplog.text
    monkeypatch.setenv("LITHIFY_ROLES", "write")
    (folder / "lithify.toml").unlink()
    assert settings.roles_now() == ("write",)


def test_roles_that_a_program_says_stay(folder: Path) -> None:
    (folder / "lithify.toml").write_text('roles = ["read"]\n')
    assert Settings(roles=("write",)).roles_now() == ("write",)
    assert Settings().model_copy(update={"roles": ("compact",)}).roles_now() == ("compact",)
