"""The tables and the figures of Jung, O'Leary and Tits 2008."""
