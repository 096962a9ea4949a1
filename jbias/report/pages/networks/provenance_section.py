"""Report section on measured networks: durations, software and hardware."""

from collections.abc import Iterable
from typing import Any

from jbias.report import document, network_records, tables
from jbias.report.pages.networks import network_blocks

MeasuredNetwork = network_records.MeasuredNetwork
Measurement = network_records.Measurement
NetworksPage, Blocks = network_blocks.NetworksPage, document.Blocks


def how_measured(page: NetworksPage) -> Blocks:
    """Yield the table of durations, and the table of software and hardware.

    The first table has a row per network and measurement: images, seconds, precision and images per
    second. Seconds and images per second are missing for a measure that reused stored decisions.
    """
    rows = []
    for network in page.networks:
        for (measure, dataset), settings in network.measures.items():
            images = settings["images"]
            seconds = settings["seconds"]
            rows.append(
                {
                    "network": network.name,
                    "measure": measure,
                    "set": dataset,
                    "images": images,
                    "seconds": seconds,
                    "precision": settings.get("precision"),
                    "rate": images / seconds if seconds else None,
                }
            )
    yield network_blocks.table(
        "speed",
        "Duration of each measure, including compilation. Images: number of images shown, over "
        "all conditions. –: the measure reused decisions of another one.",
        rows,
        network_blocks.columns(
            "network measure set precision images:d seconds:.1 rate:.1", rate="images/s"
        ),
    )
    yield provenance_table(page.networks)


def provenance_table(networks: Iterable[MeasuredNetwork]) -> tables.Table | None:
    """Return the table of each network's weights, and of the device and software used.

    One row per network; columns: see `_provenance_row`. None without networks.
    """
    rows = [_provenance_row(network) for network in networks]
    return network_blocks.table(
        "provenance",
        "Software and hardware of the measurements. Weights: digest of the file or of the weights.",
        rows,
        network_blocks.columns(
            "network model weights path device code packages python seconds:.0",
            code="jbias",
            seconds="seconds in all",
        ),
    )


def _provenance_row(network: MeasuredNetwork) -> dict[str, Any]:
    """Return weights, device, software and duration of a network, by key of the column.

    Keys: network, model, weights (digest or None), path, device, code, packages, python and seconds
    (sum over the timed measures). Unknown parts of device and code are "?".
    """
    provenance = network.provenance
    run = network.config.get("run", {})
    device, code = provenance.get("device", {}), provenance.get("code", {})
    versions = provenance.get("packages", {})
    packages = [name for name in ("jax", "flax", "numpy") if name in versions]
    return {
        "network": network.name,
        "model": network.config["model"]["name"],
        "weights": run.get("digest"),
        "path": run.get("path"),
        "device": f"{device.get('count', '?')} × {device.get('kind', '?')}",
        "code": f"{code.get('version', '?')} {str(code.get('commit'))[:10]}",
        "packages": ", ".join(f"{name} {versions[name]}" for name in packages),
        "python": provenance.get("python"),
        "seconds": sum(settings["seconds"] for settings in network.timed_measures),
    }
