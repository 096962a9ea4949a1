"""Cost of programs: choice of a strategy, memory, profiles, and devices to compile for."""
