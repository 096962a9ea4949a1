"""What lies in the folder of a run beside its records and states."""
