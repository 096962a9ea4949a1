"""Which examples a seed sees, and how they come to the step."""
