"""The tables of Pérez-Cruz et al. 2000."""
