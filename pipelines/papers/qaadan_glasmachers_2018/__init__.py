"""The tables and the figures of Qaadan and Glasmachers 2018."""
