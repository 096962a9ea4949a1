"""Whether a run would fit on devices, and what it would take there."""
