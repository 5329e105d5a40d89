"""Device names: what serves, and sentences for what does not."""

import pytest

from tercet.base.errors import Invalid
from tercet.devices.choose import DEVICE_NAMES, choose_device, resolve_device


@pytest.mark.parametrize(
    ("name", "has_weights", "kind"),
    [
        ("auto", True, "cpu"),
        ("cpu", True, "cpu"),
        ("reference", True, "reference"),
        ("cost", True, "cost"),
        ("cost", False, "cost"),
        ("auto", False, "cost"),
    ],
)
def test_a_name_means_a_device(name, has_weights, kind):
    device = choose_device(name, has_weights=has_weights)
    assert device.name == kind
    assert device.numerics_id().startswith(kind)


@pytest.mark.parametrize("name", ["cuda", "npu"])
def test_devices_that_are_not_built_say_what_is_missing(name):
    with pytest.raises(Invalid, match="use --device cpu") as caught:
        choose_device(name)
    assert repr(name) in caught.value.sentence
    assert caught.value.parameter == "device"


@pytest.mark.parametrize("name", ["", "CPU", "gpu", "cuda:0"])
def test_unknown_names_list_the_known_ones(name):
    with pytest.raises(Invalid) as caught:
        resolve_device(name, has_weights=True)
    assert all(known in caught.value.sentence for known in DEVICE_NAMES)


def test_without_a_native_device_the_reference_stands_in(monkeypatch):
    monkeypatch.setattr("tercet.devices.choose.native", lambda: None)
    assert choose_device("auto").name == "reference"
    assert choose_device("cpu").name == "reference"


def test_weights_are_needed_to_compute():
    with pytest.raises(Invalid, match="--device cost"):
        choose_device("cpu", has_weights=False)
