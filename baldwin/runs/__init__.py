"""One run: building, training, journal, checkpoints, resume, reports, videos."""
