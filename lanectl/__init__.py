"""lanectl: switch serving lanes on a DGX Station safely, and measure them honestly."""

__version__ = "0.1.0"
