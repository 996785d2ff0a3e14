"""Machines as data: the real run's counts, and errors that show the whole equation."""

import ast
import dataclasses
import sys
from pathlib import Path

import pytest

import infra.topology
from infra.topology import Gang, gb200_nvl72, laptop


def test_eleven_racks_give_704_of_792_gpus() -> None:
    machine = gb200_nvl72(racks=11)
    assert (machine.devices, machine.usable_devices) == (792, 704)
    gang = machine.gang(racks=11)
    assert gang == Gang(groups=11, hosts=16, devices_per_host=4)
    assert gang.devices == 704
    assert machine.check_expert_axis(gang, 64) == 11
    assert machine.rack_label == "nvidia.com/gpu.clique"


def test_expert_axis_never_leaves_a_rack() -> None:
    machine = gb200_nvl72(racks=11)
    for degree in (48, 128, 704, 0):
        with pytest.raises(ValueError, match=r"hosts\(16\) \* devices\(4\) = 64, 64 % expert_parallel") as error:
            machine.check_expert_axis(machine.gang(racks=11), degree)
        assert "groups(11) * hosts(16) * devices(4) = 704" in str(error.value)


def test_a_gang_larger_than_the_machine_shows_both_sides() -> None:
    with pytest.raises(ValueError) as error:
        gb200_nvl72(racks=2).gang(racks=3)
    assert "groups(3) * hosts(16) * devices(4) = 192" in str(error.value)
    assert "racks(2) * usable hosts(16 of 18) * devices(4) = 128" in str(error.value)
    with pytest.raises(ValueError, match=r"hosts\(18\)"):
        gb200_nvl72().gang(hosts=18)


@pytest.mark.parametrize(
    ("devices", "shape"), [(4, (1, 1)), (32, (1, 8)), (64, (1, 16)), (128, (2, 16)), (704, (11, 16))]
)
def test_split_fills_a_rack_before_the_next(devices: int, shape: tuple[int, int]) -> None:
    gang = gb200_nvl72().split(devices)
    assert ((gang.groups, gang.hosts), gang.devices) == (shape, devices)


@pytest.mark.parametrize("devices", [0, -4, 6, 100, 768])
def test_split_refuses_what_does_not_divide(devices: int) -> None:
    with pytest.raises(ValueError, match="devices"):
        gb200_nvl72().split(devices)


def test_laptop_has_no_gpus_and_virtual_devices() -> None:
    machine = laptop()
    assert (machine.gpus_per_host, machine.gang().devices, machine.accelerator) == (0, 2, "")
    assert machine.check_expert_axis(machine.gang(), 2) == 1


def test_every_figure_of_the_real_machine_has_a_source() -> None:
    named = {name for name, _ in gb200_nvl72().sources}
    own_choice = {"name", "accelerator", "racks", "devices_per_host", "rack_label", "sources"}
    assert named == {field.name for field in dataclasses.fields(infra.topology.Machine)} - own_choice


def test_imports_nothing_of_ours() -> None:
    folder = Path(infra.topology.__file__).parent
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                assert name.split(".")[0] in {*sys.stdlib_module_names, "infra"}, f"{path}: {name}"
