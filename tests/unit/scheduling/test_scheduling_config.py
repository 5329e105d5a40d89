import pytest

from tercet.base.errors import Invalid
from tercet.scheduling.config import SchedulingConfig
from tercet.task_executor.config import TaskExecutorConfig


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_slots", 0),
        ("max_waiting", 0),
        ("step_ns_max", 0),
        ("max_rows", 5),
        ("max_passes", -1),
        ("lookahead", -1),
        ("speculation", "on"),
        ("draft_max", 0),
        ("draft_max", 65),
        ("prefill_share", 0.0),
        ("prefill_share", 1.0),
    ],
)
def test_a_limit_out_of_range_is_refused_by_name(field, value):
    with pytest.raises(Invalid, match=f"{field} is {value}") as caught:
        SchedulingConfig(**{field: value})
    assert caught.value.parameter == field


def test_patience_is_not_negative():
    with pytest.raises(Invalid, match="front_grace_ns is -1"):
        TaskExecutorConfig(front_grace_ns=-1)
