"""Epochs of trees that come back, and the ids of jobs that are made of them."""

import time

import pytest

from tercet.base.ids import Epoch, index_of, job_id, job_of, show_task, task_id
from tercet.runtime.place import Place

FROM_S = 1_767_225_600


@pytest.mark.parametrize("away_s", [0.05, 1.0, 59.0, 86_400.0])
def test_a_host_that_comes_back_is_newer_than_all_of_its_former_self(
    monkeypatch: pytest.MonkeyPatch, away_s: float
) -> None:
    place, began = Place(secret=b"s" * 32), FROM_S + 30_000_000.0
    monkeypatch.setattr(time, "time", lambda: began)
    last = place.first_epoch + 3 + 12  # of three processes, and of twelve that replaced some
    monkeypatch.setattr(time, "time", lambda: began + away_s)
    assert place.first_epoch + 1 > last


def test_a_tree_alone_counts_its_own_processes() -> None:
    assert Place().first_epoch == 0


@pytest.mark.parametrize("years", [1, 10, 60])
def test_ids_of_any_year_fit_and_can_be_taken_apart(years: int) -> None:
    epoch = Epoch(years * 31_557_600_000 + 3)
    task = task_id(job_id(epoch, (1 << 32) - 1), 4095)
    assert 0 < task < 1 << 63
    assert (job_of(task), index_of(task)) == (job_id(epoch, (1 << 32) - 1), 4095)
    assert job_id(epoch, 1) != job_id(Epoch(epoch + 1), 1)
    assert show_task(task).endswith(".4294967295/4095")
