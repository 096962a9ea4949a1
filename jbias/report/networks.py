"""Tables of how networks were measured: how long it took, and with what."""

from jbias.report import measured_cells, tables


def speed(networks: measured_cells.Networks) -> tables.Table | None:
    rows = []
    for one in networks:
        for (measure, dataset), told in one.measures.items():
            seconds = told.get("seconds")
            rate = told["images"] / seconds if seconds else None
            row = {"network": one.name, "measure": measure, "set": dataset}
            row |= {key: told.get(key) for key in ("images", "seconds", "precision")}
            rows.append(row | {"rate": rate})
    return tables.from_rows(
        "speed",
        "How long each measure took, compiling included. Images: shown, under all conditions "
        "together. –: its decisions were another measure's already.",
        rows,
        {
            "network": ("Network", str),
            "measure": ("measure", str),
            "set": ("set", str),
            "precision": ("precision", str),
            "images": ("images", tables.whole),
            "seconds": ("seconds", tables.digits(1)),
            "rate": ("images/s", tables.digits(1)),
        },
    )


def provenance(networks: measured_cells.Networks) -> tables.Table | None:
    rows = []
    for one in networks:
        made, run = one.provenance, one.config.get("run", {})
        device, code = made.get("device", {}), made.get("code", {})
        packages = made.get("packages", {})
        named = [
            f"{k} {packages[k]}" for k in ("jax", "flax", "numpy") if k in packages
        ]
        row = {"network": one.name, "model": one.config["model"]["name"]}
        row |= {"weights": run.get("digest"), "path": run.get("path")}
        row |= {"device": f"{device.get('count', '?')} × {device.get('kind', '?')}"}
        row |= {"code": f"{code.get('version', '?')} {str(code.get('commit'))[:10]}"}
        row |= {"packages": ", ".join(named), "python": made.get("python")}
        rows.append(row | {"seconds": sum(told["seconds"] for told in one.asked)})
    return tables.from_rows(
        "provenance",
        "What was measured with what. Weights: digest of the file, or of the run's weights. "
        "Sets and their fingerprints are in each network's provenance.json.",
        rows,
        {
            "network": ("Network", str),
            "model": ("model", str),
            "weights": ("weights", str),
            "path": ("from", str),
            "device": ("device", str),
            "code": ("jbias", str),
            "packages": ("packages", str),
            "python": ("Python", str),
            "seconds": ("seconds in all", tables.digits(0)),
        },
    )
