"""How old what a route brings is: lag, latency, what the source will soon delete, and what was promised."""
