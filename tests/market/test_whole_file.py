"""Prices and models are written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.market.markets import BEGIN_UNIX_S, DAY_S, spiky_prices

from elastune.errors import SpecError
from elastune.market.logistic import Logistic
from elastune.market.price_file import save_prices
from elastune.market.whole_file import write_whole

PRICES = spiky_prices(days=2, markets=1)


@pytest.mark.parametrize(
    "save",
    [
        lambda path: save_prices(PRICES, path),
        lambda path: Logistic.fit(PRICES, BEGIN_UNIX_S + DAY_S).save(path),
    ],
    ids=["prices", "model"],
)
def test_what_was_there_stays_where_the_disk_is_full(
    save: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kept"
    save(path)
    before = path.read_bytes()

    def full(self: Path, content: bytes) -> int:
        with self.open("wb") as file:
            file.write(content[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(SpecError, match="kept: cannot be written: No space left on device"):
        save(path)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["kept"]


def test_a_link_stays_one_and_a_device_is_written_to(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_whole(tmp_path / "link", b"x")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_bytes() == b"x"
    write_whole(Path("/dev/null"), b"x")
    assert not Path("/dev/null").is_file()
