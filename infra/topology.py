"""Machines as data: what a rack holds, how racks make a cluster, and how a job divides over them.

    machine = gb200_nvl72(racks=11)
    gang = machine.gang(racks=11)              # 11 groups of 16 hosts of 4 GPUs: 704 devices
    machine.check_expert_axis(gang, 64)        # the expert axis fits one rack, or an error with the whole equation

Invariant: pure data and arithmetic; imports nothing of ours and nothing heavy. Bytes and FLOP/s are plain numbers per
device and second; "one way" means that a device sends at this rate while it receives at the same rate.
"""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gang:
    """How many processes a job has and where: `groups` racks of `hosts` hosts of `devices_per_host` devices."""

    groups: int
    hosts: int
    devices_per_host: int

    def __post_init__(self) -> None:
        if min(self.groups, self.hosts, self.devices_per_host) < 1:
            raise ValueError(f"a gang needs at least one of each, found {self.equation}")

    @property
    def devices(self) -> int:
        return self.groups * self.hosts * self.devices_per_host

    @property
    def devices_per_group(self) -> int:
        return self.hosts * self.devices_per_host

    @property
    def equation(self) -> str:
        return f"groups({self.groups}) * hosts({self.hosts}) * devices({self.devices_per_host}) = {self.devices}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine:
    """A cluster of equal racks, or one computer (a rack of one host).

    Attributes:
        accelerator: name of the accelerator for people and schedulers, empty for CPU devices.
        racks: domains of fast links.
        hosts_per_rack: hosts that are built in; `usable_hosts_per_rack` of them are given to jobs, the rest are spares.
        devices_per_host: GPUs of a host; on a CPU machine the virtual devices that share it.
        memory_bytes_per_device: memory that arrays live in.
        peak_flops_per_device: dense bf16 FLOP/s (fp32 on a CPU machine) that MFU is measured against.
        link_bytes_per_second: one way, per device, inside a rack.
        network_bytes_per_second: one way, per device, between racks.
        host_cpus, host_memory_bytes: of one host.
        rack_label: node label that is equal over one rack, empty where there are no racks.
        sources: field -> where its figure comes from.
    """

    name: str
    accelerator: str = ""
    racks: int
    hosts_per_rack: int
    usable_hosts_per_rack: int
    devices_per_host: int
    memory_bytes_per_device: int
    peak_flops_per_device: float
    link_bytes_per_second: float
    network_bytes_per_second: float
    host_cpus: int
    host_memory_bytes: int
    rack_label: str = ""
    sources: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.usable_hosts_per_rack <= self.hosts_per_rack:
            raise ValueError(
                f"{self.name}: expected 1 <= usable_hosts_per_rack <= hosts_per_rack, found "
                f"{self.usable_hosts_per_rack} and {self.hosts_per_rack}"
            )

    @property
    def usable_devices_per_rack(self) -> int:
        return self.usable_hosts_per_rack * self.devices_per_host

    @property
    def usable_devices(self) -> int:
        return self.racks * self.usable_devices_per_rack

    @property
    def devices(self) -> int:
        """All that are built in, spares among them."""
        return self.racks * self.hosts_per_rack * self.devices_per_host

    @property
    def gpus_per_host(self) -> int:
        """GPUs to ask a scheduler for; 0 on a CPU machine."""
        return self.devices_per_host if self.accelerator else 0

    def gang(self, *, racks: int = 1, hosts: int | None = None) -> Gang:
        """All usable hosts of `racks` racks, or `hosts` of them in each.

        Raises:
            ValueError: the machine has fewer; the text holds both sides of the equation.
        """
        wanted = Gang(
            groups=racks,
            hosts=self.usable_hosts_per_rack if hosts is None else hosts,
            devices_per_host=self.devices_per_host,
        )
        if wanted.groups > self.racks or wanted.hosts > self.usable_hosts_per_rack:
            raise ValueError(
                f"{self.name} cannot hold {wanted.equation}: it has racks({self.racks}) * "
                f"usable hosts({self.usable_hosts_per_rack} of {self.hosts_per_rack}) * "
                f"devices({self.devices_per_host}) = {self.usable_devices}"
            )
        return wanted

    def split(self, devices: int) -> Gang:
        """The gang of exactly `devices` devices: hosts of one rack while they suffice, then whole racks.

        Raises:
            ValueError: no whole number of hosts or racks gives that many.
        """
        per_host, per_rack = self.devices_per_host, self.usable_devices_per_rack
        if devices >= 1 and devices <= per_rack and devices % per_host == 0:
            return self.gang(hosts=devices // per_host)
        if devices >= 1 and devices % per_rack == 0:
            return self.gang(racks=devices // per_rack)
        raise ValueError(
            f"{self.name} cannot divide {devices} devices: inside a rack {devices} % devices per host({per_host}) = "
            f"{devices % per_host}, over racks {devices} % (usable hosts({self.usable_hosts_per_rack}) * "
            f"devices({per_host}) = {per_rack}) = {devices % per_rack}; expected 0 in one of them"
        )

    def check_expert_axis(self, gang: Gang, expert_parallel: int) -> int:
        """Data-parallel replicas of the expert axis over the whole gang.

        Raises:
            ValueError: the axis would leave a rack, or does not divide a rack's devices.
        """
        per_group = gang.devices_per_group
        if expert_parallel < 1 or per_group % expert_parallel:
            raise ValueError(
                f"the expert axis must stay inside a rack and divide it: hosts({gang.hosts}) * "
                f"devices({gang.devices_per_host}) = {per_group}, {per_group} % expert_parallel({expert_parallel}) = "
                f"{per_group % expert_parallel if expert_parallel > 0 else 'undefined'}, expected 0; {gang.equation}"
            )
        return gang.groups * per_group // expert_parallel


def gb200_nvl72(*, racks: int = 11) -> Machine:
    """Racks of 18 trays of 4 GB200 in one NVLink domain, 16 trays of each used, as the 535B run had them."""
    return Machine(
        name=f"{racks} GB200 NVL72 rack{'' if racks == 1 else 's'}",
        accelerator="GB200",
        racks=racks,
        hosts_per_rack=18,
        usable_hosts_per_rack=16,
        devices_per_host=4,
        memory_bytes_per_device=186 * 10**9,
        peak_flops_per_device=2.5e15,
        link_bytes_per_second=900e9,
        network_bytes_per_second=50e9,
        host_cpus=144,
        host_memory_bytes=960 * 10**9,
        rack_label="nvidia.com/gpu.clique",
        sources=(
            ("hosts_per_rack", "NVL72: 72 GPUs in 18 compute trays of 4"),
            ("usable_hosts_per_rack", "marin-community/marin #7225, #8870: only 16 of 18 can be counted on"),
            ("memory_bytes_per_device", "vendor sheet: 13.4 TB of HBM3e a rack, over 72"),
            (
                "peak_flops_per_device",
                "derived: 16.8 s a step at 23.4% MFU (#8506) gives 2.5e15; other sources say 2.25e15",
            ),
            ("link_bytes_per_second", "vendor sheet: NVLink 5, 1.8 TB/s both ways together"),
            ("network_bytes_per_second", "assumed: one 400 Gbit/s port a GPU; the run's own figure is not public"),
            ("host_cpus", "vendor sheet: two Grace CPUs of 72 cores a tray"),
            ("host_memory_bytes", "vendor sheet: 480 GB of LPDDR5X a Grace CPU"),
        ),
    )


def laptop(*, devices: int = 2, cpus: int = 2, memory_gib: int = 8) -> Machine:
    """One computer with two cores, its devices virtual ones that share them.

    Figures are measured (matmuls of fp32 on two cores); links are memory copies.
    """
    return Machine(
        name=f"laptop of {cpus} cores",
        racks=1,
        hosts_per_rack=1,
        usable_hosts_per_rack=1,
        devices_per_host=devices,
        memory_bytes_per_device=memory_gib * 2**30 // devices,
        peak_flops_per_device=190e9 / 2 * cpus / devices,
        link_bytes_per_second=5e9,
        network_bytes_per_second=5e9,
        host_cpus=cpus,
        host_memory_bytes=memory_gib * 2**30,
        sources=(
            ("peak_flops_per_device", "measured: 160 to 220 GFLOP/s on two cores, all devices together"),
            ("link_bytes_per_second", "assumed: the order of a memory copy"),
        ),
    )
