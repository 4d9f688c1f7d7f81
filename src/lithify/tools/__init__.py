"""Programs around a lake: the demo, the doctor."""
