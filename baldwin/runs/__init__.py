"""One run, remembered: built, driven, written down, resumed, shown."""
