"""What a person sees of a command: bars, lines, messages of one line, signals."""
