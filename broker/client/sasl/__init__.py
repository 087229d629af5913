"""SASL exchanges as pure machines: bytes in, bytes out. What carries them is the caller's business."""
