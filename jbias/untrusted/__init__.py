"""Safe readers of files that others wrote, which may be damaged or hostile."""
