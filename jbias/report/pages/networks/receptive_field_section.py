"""Report section on measured networks: effective receptive fields."""

from jbias.report import document, tables
from jbias.report.pages.networks import network_blocks

NetworksPage, Blocks = network_blocks.NetworksPage, document.Blocks


def receptive_fields(page: NetworksPage) -> Blocks:
    """Yield the table of effective receptive fields; None if no field was measured.

    One row per network, measurement and site. Columns: network, site, and one per number and share,
    such as "radius 50 %".
    """
    rows = {}
    heads = {}
    for network, measurement, _ in page.measurements("receptive_field"):
        for number in network.numbers[measurement]:
            site, _, share = number.condition.rpartition(" ")
            new_row = {"network": network.name, "site": site}
            row = rows.setdefault((network.name, measurement, site), new_row)
            key = f"{number.metric} {share}"
            row[key] = number.value
            kind = number.metric.removeprefix("receptive_")
            heads[key] = f"{kind} {share.replace('%', ' %')}"
    columns = network_blocks.columns("network site")
    columns |= {
        key: tables.Column(head, tables.digits(1)) for key, head in heads.items()
    }
    yield network_blocks.table(
        "receptive_fields",
        "Effective receptive field of each site's middle unit: the pixels that "
        "hold a share of it (area), and the radius in pixels of the disc that does.",
        rows.values(),
        columns,
    )
