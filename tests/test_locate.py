"""npusim finds its own files in every kind of installation, the user's data where they say, and a cache."""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from npusim import locate
from npusim.errors import FileError, UnknownNameError

SOURCE = Path(locate.__file__)


def data_root_seen_from(package: Path) -> str:
    """Run the locator of a copy of npusim in a fresh interpreter and return the root it finds."""
    code = "from npusim.locate import data_root; print(data_root())"
    environment = {**os.environ, "PYTHONPATH": str(package.parent)}
    # `-c` puts the working folder first on the path, so it must not be the checkout under test.
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, env=environment, cwd=package.parent, capture_output=True, text=True)
    return run.stdout.strip() or run.stderr


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of npusim that holds little but the locator, in a folder with a space in its name."""
    folder = tmp_path / "some place" / "npusim"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    for source in ("locate.py", "errors.py"):
        shutil.copy(SOURCE.parent / source, folder)
    return folder


def test_a_checkout_offers_its_own_folders(package: Path) -> None:
    (package.parent / "pyproject.toml").write_text('[project]\nname = "npusim"\n')
    assert data_root_seen_from(package) == str(package.parent)


def test_an_editable_install_offers_the_folders_of_the_checkout(package: Path, tmp_path: Path) -> None:
    (package.parent / "pyproject.toml").write_text('[project]\nname = "npusim"\n')
    site = tmp_path / "site-packages"
    site.mkdir()
    (site / "_npusim.pth").write_text(str(package.parent) + "\n")
    code = f"import site; site.addsitedir({str(site)!r}); import npusim.locate as at; print(at.data_root())"
    run = subprocess.run([sys.executable, "-S", "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert run.stdout.strip() == str(package.parent), run.stderr


def test_a_wheel_offers_what_lies_inside_the_package(package: Path) -> None:
    (package / "_data").mkdir()
    (package.parent / "configs").mkdir()
    assert data_root_seen_from(package) == str(package / "_data")


@pytest.mark.parametrize("pyproject", [None, '[project]\nname = "other"\n', "not toml ["])
def test_the_folders_of_another_project_are_not_taken_for_ours(package: Path, pyproject: str | None) -> None:
    (package.parent / "configs").mkdir()
    if pyproject is not None:
        (package.parent / "pyproject.toml").write_text(pyproject)
    answer = data_root_seen_from(package)
    assert "FileError" in answer and "install npusim again" in answer


def test_a_missing_resource_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UnknownNameError, match="did you mean `configs`"):
        locate.resource("confgs")


def test_a_resource_outside_the_data_folder_is_refused() -> None:
    with pytest.raises(ValueError, match="leads out of"):
        locate.resource("..", "elsewhere")


def test_resource_names_are_sorted_and_bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locate, "data_root", lambda: tmp_path)
    folder = tmp_path / "configs" / "socs"
    (folder / "folder.yaml").mkdir(parents=True)
    for name in ("zeta.yaml", "alpha.v2.yaml", "note.txt", ".hidden.yaml", "_draft.yaml"):
        (folder / name).touch()
    assert locate.resource_names("configs/socs", ".yaml") == ["alpha.v2", "zeta"]
    assert locate.resource_names("no/such/folder", ".yaml") == []


class TestDatasetRoot:
    def test_nobody_named_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv(locate.DATA_VARIABLE, raising=False)
        assert locate.dataset_root() is None

    def test_the_command_line_wins_over_the_environment(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "a").mkdir()
        (tmp_path / "b").mkdir()
        monkeypatch.setenv(locate.DATA_VARIABLE, str(tmp_path / "b"))
        assert locate.dataset_root(tmp_path / "a") == tmp_path / "a"
        assert locate.dataset_root() == tmp_path / "b"

    def test_a_named_folder_that_is_missing_is_an_error(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with pytest.raises(FileError, match="--data"):
            locate.dataset_root(tmp_path / "gone")
        monkeypatch.setenv(locate.DATA_VARIABLE, str(tmp_path / "gone"))
        with pytest.raises(FileError, match=locate.DATA_VARIABLE):
            locate.dataset_root()


class TestCacheDir:
    def test_the_environment_decides(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(locate.CACHE_VARIABLE, str(tmp_path / "here"))
        folder = locate.cache_dir("kernels", "abc")
        assert folder == tmp_path / "here" / "kernels" / "abc" and folder.is_dir()

    def test_a_named_place_that_cannot_be_written_to_is_an_error(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "file").touch()
        monkeypatch.setenv(locate.CACHE_VARIABLE, str(tmp_path / "file"))
        with pytest.raises(FileError, match=locate.CACHE_VARIABLE):
            locate.cache_dir()

    @pytest.mark.skipif(sys.platform != "linux", reason="other platforms have other places for caches")
    def test_the_platform_decides_where_nothing_is_named(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv(locate.CACHE_VARIABLE, raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert locate.cache_dir() == tmp_path / "npusim"

    @pytest.mark.skipif(sys.platform != "linux", reason="other platforms have other places for caches")
    def test_a_home_that_cannot_be_written_to_gives_a_private_temporary_folder(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "home").touch()
        (tmp_path / "tmp").mkdir()
        monkeypatch.delenv(locate.CACHE_VARIABLE, raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
        monkeypatch.setattr(locate.tempfile, "tempdir", str(tmp_path / "tmp"))
        locate._private_temporary_root.cache_clear()
        try:
            folder = locate.cache_dir("kernels")
            assert folder.is_relative_to(tmp_path / "tmp") and folder.name == "kernels"
            assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
        finally:
            locate._private_temporary_root.cache_clear()

    @pytest.mark.skipif(not hasattr(os, "getuid"), reason="folders have no owner by number here")
    def test_a_temporary_folder_that_others_can_write_to_is_not_used(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        open_to_all = tmp_path / f"npusim-{os.getuid()}"
        open_to_all.mkdir()
        open_to_all.chmod(0o777)
        monkeypatch.setattr(locate.tempfile, "tempdir", str(tmp_path))
        locate._private_temporary_root.cache_clear()
        try:
            assert locate._private_temporary_root() != open_to_all
        finally:
            locate._private_temporary_root.cache_clear()
