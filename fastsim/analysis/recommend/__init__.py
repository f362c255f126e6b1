"""Settings for a load: search, choice, rate, flags, reasons."""
