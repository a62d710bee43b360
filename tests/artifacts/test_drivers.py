"""A name in the configuration becomes an open store, or an error that says what to write instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from harborage.artifacts import (
    ARTIFACT_DRIVERS,
    ArtifactConfig,
    ArtifactScope,
    FileArtifactStore,
    InvalidConfigError,
    MemoryArtifactStore,
    StorageError,
    open_artifacts,
)
from harborage.drivers import DriverTable, DriverUnknownError


def test_the_table_names_the_drivers_there_are() -> None:
    """Memory and files are built in."""
    assert ARTIFACT_DRIVERS.names() == ["fs", "inmem"]


@pytest.mark.parametrize("name", ["", "inmem"])
async def test_a_blank_driver_name_means_memory(name: str) -> None:
    """The default keeps everything in memory."""
    assert isinstance(await open_artifacts(ArtifactConfig(driver=name)), MemoryArtifactStore)


async def test_files_are_kept_where_the_configuration_says(tmp_path: Path) -> None:
    """The fs driver stores below its root, which it makes."""
    store = await open_artifacts(ArtifactConfig(driver="fs", fs_root=str(tmp_path / "deep" / "root")))
    assert isinstance(store, FileArtifactStore)
    assert (tmp_path / "deep" / "root").is_dir()
    await store.put_bytes(ArtifactScope("t", "u", "s"), b"x")
    assert (tmp_path / "deep" / "root" / "t").is_dir()
    await store.aclose()


async def test_files_need_a_folder() -> None:
    """Without a root the error names the setting."""
    with pytest.raises(InvalidConfigError, match=r"artifacts\.fs_root"):
        await open_artifacts(ArtifactConfig(driver="fs"))


async def test_a_folder_that_cannot_be_made_fails_at_once(tmp_path: Path) -> None:
    """Opening names the path that is in the way, instead of the first put."""
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match="file") as caught:
        await open_artifacts(ArtifactConfig(driver="fs", fs_root=str(tmp_path / "file" / "root")))
    assert str(tmp_path / "file") in caught.value.path


async def test_a_negative_threshold_is_refused() -> None:
    """Zero is a real value, less is not."""
    await (await open_artifacts(ArtifactConfig(heavy_output_threshold_bytes=0))).aclose()
    with pytest.raises(InvalidConfigError, match="heavy_output_threshold_bytes is -1"):
        await open_artifacts(ArtifactConfig(heavy_output_threshold_bytes=-1))


async def test_an_unknown_driver_lists_those_there_are() -> None:
    """The error names what was asked for and what could have been, or `<none>`."""
    with pytest.raises(DriverUnknownError, match=r"artifacts: unknown driver tape \(registered: fs,inmem\)"):
        await open_artifacts(ArtifactConfig(driver="tape"))
    with pytest.raises(DriverUnknownError, match="<none>"):
        await open_artifacts(ArtifactConfig(), drivers=DriverTable("artifacts"))


def test_the_defaults_are_those_of_the_documentation() -> None:
    """Memory, and results from 32 KiB on become artifacts."""
    assert ArtifactConfig() == ArtifactConfig(driver="inmem", fs_root="", heavy_output_threshold_bytes=32768)
