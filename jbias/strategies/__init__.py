"""How the seeds of a run lie on the devices, and how one step serves them all."""
